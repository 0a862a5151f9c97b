"""The faces, one a module."""

from backends.simulated.serving.face import Face
from backends.simulated.serving.faces.llamacpp import LLAMACPP
from backends.simulated.serving.faces.ollama import OLLAMA
from backends.simulated.serving.faces.openai import OPENAI
from backends.simulated.serving.faces.sglang import SGLANG
from backends.simulated.serving.faces.tgi import TGI
from backends.simulated.serving.faces.trtllm import TRTLLM
from backends.simulated.serving.faces.vllm import VLLM

__all__ = ["FACES"]

FACES: dict[str, Face] = {face.name: face for face in (VLLM, SGLANG, TRTLLM, TGI, LLAMACPP, OLLAMA, OPENAI)}
