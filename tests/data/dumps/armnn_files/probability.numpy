{ "layerGuid": 16, "layerName": "probability", "outputSlot": 0, "shape": [1, 10], "min": 0, "max": 248, "data": [[0, 0, 2, 0, 0, 0, 0, 248, 0, 6]] }
