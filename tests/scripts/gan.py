"""Two models and two optimizers, each of which steps in every iteration."""

import torch
from common import epoch, join, network, options, parallel, sharded
from torch.nn.functional import softplus

args = options()
join()
loader = sharded(args.batch_size)
judge, maker = parallel(network(outputs=1)), parallel(network(64, 256))
judging = torch.optim.Adam(judge.parameters())
making = torch.optim.Adam(maker.parameters())
for number in range(args.epochs):
    with epoch(number):
        for real, _ in loader:
            judging.zero_grad()
            made = maker(torch.randn(len(real), 64))
            scores = judge(torch.cat([real, made.detach()]))
            (
                softplus(-scores[: len(real)]) + softplus(scores[len(real) :])
            ).mean().backward()
            judging.step()
            making.zero_grad()
            softplus(-judge(made)).mean().backward()
            making.step()
