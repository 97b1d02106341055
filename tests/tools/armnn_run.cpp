// Runs .armnn files on the real Arm NN's reference backend (CpuRef; Debian 12 has 20.08). Build:
//   apt-get install libarmnn-dev libarmnn-cpuref-backend22 g++
//   g++ -O1 -std=c++14 armnn_run.cpp -o armnn_run -larmnnSerializer -larmnn
// Reads jobs on standard input, one a line, fields separated by tabs: MODEL, then i:NAME=FILE for each input (raw
// numbers as stored) and o:NAME=FILE for each output. Answers a line for each job: ok, or what Arm NN says against it.
#include <armnn/ArmNN.hpp>
#include <armnnDeserializer/IDeserializer.hpp>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

using Bytes = std::vector<char>;

static Bytes ReadFile(const std::string& path)
{
    std::ifstream in(path, std::ios::binary);
    return Bytes(std::istreambuf_iterator<char>(in), {});
}

static std::string Run(const std::vector<std::string>& fields)
{
    auto deserializer = armnnDeserializer::IDeserializer::Create();
    Bytes model = ReadFile(fields[0]);
    auto network = deserializer->CreateNetworkFromBinary(std::vector<uint8_t>(model.begin(), model.end()));
    auto runtime = armnn::IRuntime::Create({});
    std::vector<std::string> messages;
    auto optimized = armnn::Optimize(*network, {armnn::Compute::CpuRef}, runtime->GetDeviceSpec(), {}, messages);
    armnn::NetworkId id;
    std::string error;
    if (runtime->LoadNetwork(id, std::move(optimized), error) != armnn::Status::Success)
    {
        return "LoadNetwork: " + error;
    }
    std::vector<Bytes> buffers(fields.size());
    std::vector<std::string> files(fields.size());
    armnn::InputTensors inputs;
    armnn::OutputTensors outputs;
    for (size_t i = 1; i < fields.size(); ++i)
    {
        size_t cut = fields[i].rfind('=');
        std::string name = fields[i].substr(2, cut - 2);
        std::string file = fields[i].substr(cut + 1);
        if (fields[i][0] == 'i')
        {
            auto binding = deserializer->GetNetworkInputBindingInfo(0, name);
            buffers[i] = ReadFile(file);
            if (buffers[i].size() != binding.m_TensorInfo.GetNumBytes())
            {
                return "input " + name + " has another size";
            }
            inputs.emplace_back(binding.m_BindingId, armnn::ConstTensor(binding.m_TensorInfo, buffers[i].data()));
        }
        else
        {
            auto binding = deserializer->GetNetworkOutputBindingInfo(0, name);
            buffers[i].resize(binding.m_TensorInfo.GetNumBytes());
            files[i] = file;
            outputs.emplace_back(binding.m_BindingId, armnn::Tensor(binding.m_TensorInfo, buffers[i].data()));
        }
    }
    if (runtime->EnqueueWorkload(id, inputs, outputs) != armnn::Status::Success)
    {
        return "EnqueueWorkload failed";
    }
    for (size_t i = 1; i < fields.size(); ++i)
    {
        if (!files[i].empty())
        {
            std::ofstream(files[i], std::ios::binary).write(buffers[i].data(), buffers[i].size());
        }
    }
    return "ok";
}

int main()
{
    std::string line;
    while (std::getline(std::cin, line))
    {
        std::vector<std::string> fields;
        std::istringstream split(line);
        for (std::string field; std::getline(split, field, '\t');)
        {
            fields.push_back(field);
        }
        // a process for each: some files make this version abort
        int ends[2];
        if (pipe(ends))
        {
            return 1;
        }
        pid_t child = fork();
        if (child == 0)
        {
            std::string answer;
            try
            {
                answer = Run(fields);
            }
            catch (const std::exception& e)
            {
                answer = e.what();
            }
            for (char& c : answer)
            {
                c = c == '\n' ? ' ' : c;
            }
            (void)!write(ends[1], answer.data(), answer.size());
            _exit(0);
        }
        close(ends[1]);
        std::string answer;
        char buffer[4096];
        for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
        {
            answer.append(buffer, n);
        }
        close(ends[0]);
        waitpid(child, nullptr, 0);
        std::cout << (answer.empty() ? "aborted" : answer) << std::endl;
    }
}
