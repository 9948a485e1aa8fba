"""A server that answers as vLLM's does, with a tiny model: the paths, bodies and refusals that the sampler relies on, and faults on demand.

It keeps what vLLM keeps: a prefix cache that survives new weights until it is reset, adapters by name, and the weights it was started with,
which it has again after a restart.
"""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


class FakeVllm:
    """Serves the model in `folder`, with a context of `max_model_len`.

    `dev_mode`, `takes_lora` and `logprobs_mode` are what vLLM is started with.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dev_mode: bool = True,
        takes_lora: bool = True,
        logprobs_mode: str = "processed_logprobs",
        max_model_len: int = 256,
    ) -> None:
        self.folder, self.dev_mode, self.takes_lora = folder, dev_mode, takes_lora
        self.logprobs_mode, self.max_model_len = logprobs_mode, max_model_len
        self.calls: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.faults: list[Callable[[str], int | None]] = []
        """Each sees the next path and may answer with an HTTP status; 0 hangs up. Those that answer are used up."""
        self._lock = threading.Lock()
        self.starts = 0
        self.restart()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.handle(self, None)

            def do_POST(self) -> None:
                fake.handle(self, json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}"))

            def log_message(self, *arguments: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def restart(self) -> None:
        """Be as at the start: no adapters, no cache, the first weights."""
        with self._lock:
            self.starts += 1
            self.base = AutoModelForCausalLM.from_pretrained(self.folder).eval()
            self.adapters: dict[str, Any] = {}
            self.prefix_cache: dict[tuple[str, tuple[int, ...]], torch.Tensor] = {}

    def fail(self, path: str, status: int, *, times: int = 1) -> None:
        """Answer the next `times` calls of `path` with `status`; 0 hangs up."""
        self.faults += [lambda called: status if called == path else None] * times

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def handle(self, http: Any, body: dict[str, Any] | None) -> None:
        with self._lock:
            self.calls.append(http.path)
            status = self._fault(http.path)
            if status == 0:
                http.close_connection = True
                return
            answer: Any = {"error": {"message": "made to fail", "type": "InternalServerError", "code": status}}
            if status is None:
                try:
                    status, answer = 200, self._answer(http.path, body or {})
                except _Refusal as refusal:
                    status, answer = refusal.status, {"error": {"message": str(refusal), "code": refusal.status}}
        data = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        http.send_response(status)
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def _fault(self, path: str) -> int | None:
        for fault in self.faults:
            if (status := fault(path)) is not None:
                self.faults.remove(fault)
                return status
        return None

    def _answer(self, path: str, body: dict[str, Any]) -> Any:
        if path == "/health":
            return ""
        if path == "/metrics":
            return f"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {self.starts}.0\n"
        if path == "/v1/models":
            base = {"id": str(self.folder), "parent": None, "max_model_len": self.max_model_len}
            return {"object": "list", "data": [base, *({"id": name, "parent": base["id"]} for name in self.adapters)]}
        if path == "/v1/completions":
            self.bodies.append(body)
            return {"object": "text_completion", "choices": [self._complete(**body)]}
        if path == "/v1/load_lora_adapter" and self.takes_lora:
            return self._load_adapter(body["lora_name"], Path(body["lora_path"]))
        if path == "/v1/unload_lora_adapter" and self.takes_lora:
            if body["lora_name"] not in self.adapters:
                raise _Refusal(404, f"The lora adapter '{body['lora_name']}' cannot be found.")
            del self.adapters[body["lora_name"]]
            return "Success"
        if path == "/collective_rpc" and self.dev_mode:
            assert body["method"] == "reload_weights"
            self.base = AutoModelForCausalLM.from_pretrained(body["kwargs"]["weights_path"]).eval()
            return {"results": [None]}
        if path == "/reset_prefix_cache" and self.dev_mode:
            self.prefix_cache.clear()
            return ""
        raise _Refusal(404, "Not Found")

    def _load_adapter(self, name: str, folder: Path) -> str:
        from peft import PeftModel

        if name in self.adapters:
            raise _Refusal(400, f"The lora adapter '{name}' has already been loaded.")
        if not (folder / "adapter_config.json").exists():
            raise _Refusal(404, f"Loading lora {name} failed: No adapter found for {folder}")
        self.adapters[name] = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(self.folder), folder).eval()
        return f"Success: LoRA adapter '{name}' added successfully."

    def _complete(
        self,
        *,
        model: str,
        prompt: list[int],
        max_tokens: int,
        temperature: float,
        seed: int,
        logprobs: int,
        return_token_ids: bool,
        stop_token_ids: tuple[int, ...] = (),
        ignore_eos: bool = False,
        **truncation: float,
    ) -> dict[str, Any]:
        if model != str(self.folder) and model not in self.adapters:
            raise _Refusal(404, f"The model `{model}` does not exist.")
        if len(prompt) + max_tokens > self.max_model_len:
            raise _Refusal(400, f"This model's maximum context length is {self.max_model_len} tokens.")
        if not 0 <= temperature <= 2:
            raise _Refusal(400, f"temperature must be in [0, 2], got {temperature}.")
        stops = {*stop_token_ids, *(() if ignore_eos else (self.base.config.eos_token_id,))}
        draws = torch.Generator().manual_seed(seed)
        tokens: list[int] = []
        chosen: list[float] = []
        top: list[dict[str, float]] = []
        for _ in range(max_tokens):
            logits = self._logits(model, (*prompt, *tokens))
            sampled = torch.log_softmax(logits / (temperature or 1.0), dim=-1)
            token = int(logits.argmax() if temperature == 0 else torch.multinomial(sampled.exp(), 1, generator=draws))
            told = sampled if self.logprobs_mode == "processed_logprobs" else torch.log_softmax(logits, dim=-1)
            best = told.topk(logprobs) if logprobs else None
            top.append({} if best is None else {f"token_id:{i}": v for v, i in zip(*(x.tolist() for x in best), strict=True)})
            tokens.append(token)
            chosen.append(float(told[token]))
            if token in stops:
                break
        return {
            "index": 0,
            "text": "",
            "logprobs": {"token_logprobs": chosen, "tokens": [], "text_offset": [], "top_logprobs": top},
            "finish_reason": "stop" if tokens[-1] in stops else "length",
            "token_ids": tokens if return_token_ids else None,
        }

    @torch.inference_mode()
    def _logits(self, model: str, ids: tuple[int, ...]) -> torch.Tensor:
        """Of the next token; what was computed once is taken from the cache, as blocks of a prefix are."""
        if (model, ids) not in self.prefix_cache:
            weights = self.adapters.get(model, self.base)
            self.prefix_cache[model, ids] = weights(torch.tensor([ids])).logits[0, -1].float()
        return self.prefix_cache[model, ids]


class _Refusal(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
