"""What a batch of packed rows costs the model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from recipes.nano.data import DOCUMENT, KIND, PROMPT, TOKEN, TURN
from recipes.nano.model import TrainingModel

PROMPT_WEIGHT = 0.1
MTP_WEIGHT = 0.3
BALANCE_WEIGHT = 0.01

TokenLosses = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Targets:
    """The tokens some places ahead.

    Attributes:
        tokens: int64 [rows, length].
        weights: float32 [rows, length], what each token's loss counts.
        turn: bool [rows, length], whether the token is the assistant's.
    """

    tokens: Tensor
    weights: Tensor
    turn: Tensor


def targets(rows: Tensor, ahead: int) -> Targets:
    """The targets `ahead` places on, of rows int16 [rows, 3, length].

    Tokens of another document than the one that predicts them count nothing.
    """
    coming = rows.roll(-ahead, 2)
    index = torch.arange(rows.shape[2], device=rows.device)
    known = (coming[:, DOCUMENT] == rows[:, DOCUMENT]) & (index < rows.shape[2] - ahead)
    turn = known & (coming[:, KIND] == TURN)
    prompt = known & (coming[:, KIND] == PROMPT)
    return Targets(coming[:, TOKEN].long(), turn + PROMPT_WEIGHT * prompt, turn)


@dataclass(frozen=True, slots=True)
class BatchLoss:
    """The losses of a batch, scalars unless said otherwise.

    Attributes:
        total: what is minimised.
        turn: mean over the assistant's tokens.
        mtp: likewise, of the token after next; 0 without an MTP head.
        balance: the routers' imbalance, 1 at best.
        turn_of_row: the sum over the assistant's tokens of each row, and how many: [rows] each.
    """

    total: Tensor
    turn: Tensor
    mtp: Tensor
    balance: Tensor
    turn_of_row: tuple[Tensor, Tensor]


def batch_loss(model: TrainingModel, rows: Tensor, token_losses: TokenLosses) -> BatchLoss:
    """The losses of rows int16 [rows, 3, length].

    Args:
        model: is run.
        rows: see `recipes.nano.data`.
        token_losses: `recipes.nano.model.token_losses`, perhaps compiled.
    """
    hidden = model(rows[:, TOKEN].long(), rows[:, DOCUMENT].int())
    following = targets(rows, 1)
    losses = token_losses(hidden.main, model.lm_head.weight, following.tokens)
    losses = losses.view_as(following.weights)
    total = _mean(losses, following.weights) + BALANCE_WEIGHT * hidden.balance
    mtp = losses.new_zeros(())
    if hidden.mtp is not None:
        after = targets(rows, 2)
        ahead = token_losses(hidden.mtp, model.lm_head.weight, after.tokens)
        ahead = ahead.view_as(after.weights)
        total = total + MTP_WEIGHT * _mean(ahead, after.weights)
        mtp = _mean(ahead.detach(), after.turn.float())
    plain, turn = losses.detach(), following.turn.float()
    sums = ((plain * turn).sum(1), turn.sum(1))
    return BatchLoss(total, _mean(plain, turn), mtp, hidden.balance.detach(), sums)


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    return (values * weights).sum() / weights.sum().clamp_min(1.0)
