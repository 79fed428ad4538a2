#!/usr/bin/env python3
"""Sums tensors over all ranks with NCCL, checks the sums and says how long they took. One process is one rank, told by
RANK and WORLD_SIZE, on the GPU LOCAL_RANK (0 if not set). It knows nothing of softib."""
import os
import sys
import time

import torch
import torch.distributed as dist

ROUNDS = 5

rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
torch.cuda.set_device(device)
dist.init_process_group("nccl", rank=rank, world_size=ranks)
want = ranks * (ranks + 1) // 2


def round_trip(size):
    x = torch.full((size // 4,), rank + 1, dtype=torch.float32, device=device)
    torch.cuda.synchronize()
    begin = time.monotonic()
    dist.all_reduce(x)
    torch.cuda.synchronize()
    spent = time.monotonic() - begin
    if not torch.all(x == want):
        sys.exit(f"rank {rank}: sums of {size} bytes are {x.unique().tolist()}, want {want}")
    return spent


for size in (1 << 10, 1 << 20, 64 << 20):
    round_trip(size)  # makes the connections
    spent = sum(round_trip(size) for _ in range(ROUNDS)) / ROUNDS
    if rank == 0:
        print(f"{size:9d} bytes: {1e6 * spent:9.0f} us, {size / spent / 1e9:6.3f} GB/s, sums right", flush=True)
dist.destroy_process_group()
