#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""PyTorch's side of tools/gpu-report, one process for all rows: torch_side.py --device cuda|cpu

Reads one request a line (JSON: network, batch, task train or eval, math fp32, tf32 or bf16, layout nchw or nhwc, modes, steps, seconds) and prints
one line for each mode: {"mode", "img_s", "ms", "mib"}, or {"mode", "failed": reason}; then {"done": true}. Modes: eager; graph, the whole step as a
CUDA graph; compile, with torch.compile; compile-graph, that as a CUDA graph. bf16 is autocast. Between requests nothing is kept on the device."""
import argparse
import faulthandler
import gc
import json
import os
import resource
import statistics
import sys
import time

TOOLS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:1] = [TOOLS, os.path.join(TOOLS, "compare")]     # not this folder: its modules have everyday names
import torch  # noqa: E402
from torch import nn  # noqa: E402

from gpu_report import networks  # noqa: E402

CHUNKS = 5


class Work:
    """A network with its batch, and one step of it."""

    def __init__(self, request, device):
        self.device, self.cuda = device, device == "cuda"
        self.train, self.batch = request["task"] == "train", request["batch"]
        torch.manual_seed(0)
        net, shape, classes = networks.build(request["network"])
        layout = torch.channels_last if request["layout"] == "nhwc" else torch.contiguous_format
        self.net = net.to(device).to(memory_format=layout)
        self.net.train(self.train)
        self.x = torch.rand(self.batch, *shape, device=device).to(memory_format=layout)
        self.y = torch.randint(0, classes, (self.batch,), device=device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, foreach=True)
        self.loss = nn.CrossEntropyLoss()
        self.bf16 = request["math"] == "bf16"
        self.run = self.net

    def sync(self):
        if self.cuda:
            torch.cuda.synchronize()

    def step(self):
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.bf16, cache_enabled=False):
            if not self.train:
                with torch.no_grad():
                    return self.run(self.x)
            loss = self.loss(self.run(self.x), self.y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return None

    def graph(self):
        """The step as a CUDA graph."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(4):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay

    def seconds(self, step, steps, seconds):
        """The middle of some chunks of steps, of one step."""
        begin = time.perf_counter()
        step()
        self.sync()
        begin = time.perf_counter()                      # the first one may compile
        for _ in range(2):
            step()
        self.sync()
        each = max(1, min(steps, int(seconds / max(1e-6, (time.perf_counter() - begin) / 2))) // CHUNKS)
        chunks = CHUNKS if (time.perf_counter() - begin) / 2 * each * CHUNKS < 3 * seconds else 1
        times = []
        for _ in range(chunks):
            begin = time.perf_counter()
            for _ in range(each):
                step()
            self.sync()
            times.append((time.perf_counter() - begin) / each)
        return statistics.median(times)


def memory_mib(cuda):
    return torch.cuda.max_memory_allocated() / 2**20 if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reason(e):
    return f"{type(e).__name__}: {' '.join(str(e).split())[:200]}"


def rows(request, device):
    cuda = device == "cuda"
    if request["math"] == "tf32" and not cuda:
        yield {"failed": "TF32 is arithmetic of CUDA devices"}
        return
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = request["math"] == "tf32"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    try:
        work = Work(request, device)
    except Exception as e:                               # a network that is not here, too little memory
        yield {"failed": reason(e)}
        return
    for mode in request["modes"]:
        try:
            if "graph" in mode and not cuda:
                raise RuntimeError("CUDA graphs need a CUDA device")
            if "compile" in mode and work.run is work.net:
                torch._dynamo.reset()
                work.run = torch.compile(work.net)
            step = work.graph() if "graph" in mode else work.step
            took = work.seconds(step, request["steps"], request["seconds"])
            yield {"mode": mode, "img_s": work.batch / took, "ms": 1e3 * took, "mib": memory_mib(cuda)}
        except Exception as e:                           # the other modes go on
            yield {"mode": mode, "failed": reason(e)}


def answer(out, line):
    out.write(json.dumps(line) + "\n")
    out.flush()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--device", choices=["cuda", "cpu"], required=True)
    a = p.parse_args()
    faulthandler.enable(all_threads=True)
    # what libraries print must not come between the answers
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    there = torch.cuda.is_available()
    answer(out, {"done": True, "torch": torch.__version__, "cuda": there,
                 "device": torch.cuda.get_device_name(0) if there and a.device == "cuda" else f"the CPU, {torch.get_num_threads()} threads"})
    for line in sys.stdin:
        request = json.loads(line)
        for row in rows(request, a.device):
            answer(out, row)
        gc.collect()
        if a.device == "cuda" and there:
            torch.cuda.empty_cache()
        answer(out, {"done": True})


if __name__ == "__main__":
    main()
