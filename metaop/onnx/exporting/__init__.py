"""The exporter: a network is recorded, and each call becomes operators of ONNX."""
