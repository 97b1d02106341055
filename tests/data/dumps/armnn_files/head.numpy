{ "layerGuid": 15, "layerName": "head", "outputSlot": 0, "shape": [1, 10], "min": 70, "max": 184, "data": [[90, 71, 145, 122, 133, 121, 70, 184, 113, 155]] }
