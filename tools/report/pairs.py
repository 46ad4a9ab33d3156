"""Two stages compared at every position of every text: what the report says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from runtime.tokenizer import Tokenizer
from tools.report import metrics
from tools.texts import Text

Json = dict[str, Any]

_WORST = 10
_SCATTERED = 2000
_EDGES = np.arange(-10, 2.01, 0.5)


class Said:
    """What one stage says at some positions: logits float32 [positions, vocabulary], their
    log-probabilities, and the best tokens.
    """

    def __init__(self, logits: np.ndarray, count: int = 10) -> None:
        self.logits = logits
        self.logs = metrics.log_softmax(logits)
        self.best = metrics.best(logits, count)


class Pair:
    """Collects a comparison, a chunk of positions after the other."""

    def __init__(self, reference: str, found: str) -> None:
        self.reference, self.found = reference, found
        self._numbers: dict[str, list[np.ndarray]] = {}
        self._scatter: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, reference: Said, found: Said, following: Sequence[int | None]) -> None:
        """What both say at some positions, and the text's next tokens there."""
        known = np.array([-1 if token is None else token for token in following])
        rows = np.arange(len(known))
        numbers = {
            "cosine": metrics.cosines(reference.logits, found.logits),
            "kl": metrics.kl_divergence(reference.logs, found.logs),
            "ulp": metrics.error_in_ulp(reference.logits, found.logits),
            "token": reference.best[:, 0],
            "found_token": found.best[:, 0],
            "top_5": metrics.shared(reference.best[:, :5], found.best[:, :5]),
            "top_10": metrics.shared(reference.best, found.best),
            "surprise": np.where(known < 0, np.nan, -reference.logs[rows, known]),
            "found_surprise": np.where(known < 0, np.nan, -found.logs[rows, known]),
        }
        for name, values in numbers.items():
            self._numbers.setdefault(name, []).append(values)
        spread = np.linspace(0, reference.logits.shape[-1] - 1, 20).astype(int)
        chosen = np.concatenate([reference.best[0], spread])
        self._scatter.append((reference.logits[0, chosen], found.logits[0, chosen]))

    def numbers(self, name: str) -> np.ndarray:
        """One number a position, in the order of the chunks."""
        return np.concatenate(self._numbers[name])

    @property
    def same(self) -> np.ndarray:
        """bool [positions]: whether the best token is the same."""
        return np.asarray(self.numbers("token") == self.numbers("found_token"))

    def report(self, texts: Sequence[Text], tokenizer: Tokenizer) -> Json:
        """All that is said of logits, as JSON values."""
        kl = self.numbers("kl")
        counts, _ = np.histogram(np.log10(np.maximum(kl, 1e-10)), _EDGES)
        return {
            "reference": self.reference,
            "found": self.found,
            "positions": len(kl),
            "logits_cosine": spread(self.numbers("cosine")),
            "kl": high_spread(kl),
            "kl_histogram": {"log10_edges": _EDGES.tolist(), "counts": counts.tolist()},
            "top_1": float(self.same.mean()),
            "top_5": float(self.numbers("top_5").mean()),
            "top_10": float(self.numbers("top_10").mean()),
            "error_ulp": {
                "mean": float(self.numbers("ulp").mean()),
                "max": float(self.numbers("ulp").max()),
            },
            "perplexity": {
                "reference": _perplexity(self.numbers("surprise")),
                "found": _perplexity(self.numbers("found_surprise")),
            },
            "divergence": [
                {"text": text.name, "position": _first(~self.same[part])}
                for text, part in zip(texts, _parts(texts), strict=True)
            ],
            "worst": self._worst(texts, tokenizer),
            "scatter": self._points(),
        }

    def _worst(self, texts: Sequence[Text], tokenizer: Tokenizer) -> list[Json]:
        kl = self.numbers("kl")
        places = [(text, position) for text in texts for position in range(len(text.tokens))]

        def said(token: int) -> str:
            return tokenizer.decode([int(token)])

        out = []
        for index in np.argsort(-kl, kind="stable")[:_WORST]:
            text, position = places[index]
            out.append(
                {
                    "text": text.name,
                    "position": position,
                    "token": said(text.tokens[position]),
                    "reference_token": said(self.numbers("token")[index]),
                    "found_token": said(self.numbers("found_token")[index]),
                    "logits_cosine": float(self.numbers("cosine")[index]),
                    "kl": float(kl[index]),
                }
            )
        return out

    def _points(self) -> Json:
        both = [np.concatenate(values) for values in zip(*self._scatter, strict=True)]
        kept = np.linspace(0, len(both[0]) - 1, min(_SCATTERED, len(both[0]))).astype(int)
        return {
            name: np.round(values[kept].astype(np.float64), 4).tolist()
            for name, values in zip(("reference", "found"), both, strict=True)
        }


def spread(values: np.ndarray) -> Json:
    """Mean, least and low percentiles of numbers, one a position; NaN where one is NaN."""
    return {"mean": float(values.mean()), "min": float(values.min())} | _percentiles(
        values, 1, 5, 50
    )


def high_spread(values: np.ndarray) -> Json:
    """Mean, largest and high percentiles of numbers, one a position; NaN where one is NaN."""
    return {"mean": float(values.mean()), "max": float(values.max())} | _percentiles(
        values, 50, 90, 99
    )


def _percentiles(values: np.ndarray, *which: int) -> Json:
    return {f"p{p}": float(np.percentile(values, p)) for p in which}


def _perplexity(surprise: np.ndarray) -> float:
    """exp of the mean negative log-probability of the text's own next tokens."""
    return float(np.exp(np.nanmean(surprise)))


def _parts(texts: Sequence[Text]) -> list[slice]:
    ends = np.cumsum([len(text.tokens) for text in texts]).tolist()
    return [slice(end - len(text.tokens), end) for text, end in zip(texts, ends, strict=True)]


def _first(flags: np.ndarray) -> int | None:
    return int(flags.argmax()) if flags.any() else None
