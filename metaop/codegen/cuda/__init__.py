"""The CUDA backend: loop nests printed as CUDA C++, compiled by NVRTC, launched through cupy."""
