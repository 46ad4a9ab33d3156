"""How far one set of logits is from another, position by position.

Every function takes [positions, …] arrays, the reference first, and returns one number a position.
Logarithms are natural: a KL divergence is in nats.
"""

from __future__ import annotations

import numpy as np

from runtime import rescoring

# Digits of bf16 after the leading one.
_BF16_DIGITS = 7


def cosines(reference: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Cosine similarity of each row, of any float dtypes; NaN where one is zero or holds NaN."""
    reference, found = _at_least_float32(reference), _at_least_float32(found)
    with np.errstate(invalid="ignore", divide="ignore"):
        lengths = np.sqrt(_products(reference, reference) * _products(found, found))
        return np.asarray(_products(reference, found) / lengths)


def _at_least_float32(values: np.ndarray) -> np.ndarray:
    """bf16 values would be multiplied in bf16."""
    values = np.asarray(values)
    return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def _products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.multiply(a, b).sum(axis=-1, dtype=np.float64))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """The logarithms of the probabilities."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    return np.asarray(shifted - np.log(total), np.float32)


def kl_divergence(reference: np.ndarray, found: np.ndarray) -> np.ndarray:
    """KL(reference || found) of log-probabilities: what is lost by taking one for the other."""
    terms = np.exp(reference) * (reference - found)
    return np.asarray(np.maximum(terms.sum(axis=-1, dtype=np.float64), 0))


def best(logits: np.ndarray, count: int) -> np.ndarray:
    """The `count` most likely tokens of each row, the best first; of equals the lower id."""
    found = np.stack([rescoring.best(row, count) for row in logits])
    order = np.lexsort((found, -np.take_along_axis(logits, found, axis=-1)), axis=-1)
    chosen: np.ndarray = np.take_along_axis(found, order, axis=-1)
    # Of equals at the edge any is chosen; the first place must be the lowest id.
    chosen[:, 0] = logits.argmax(axis=-1)
    return chosen


def shared(reference: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The share of each row of tokens that the other's row holds too."""
    pairs = zip(reference.tolist(), found.tolist(), strict=True)
    return np.array([len(set(a) & set(b)) / len(a) for a, b in pairs])


def error_in_ulp(reference: np.ndarray, found: np.ndarray) -> np.ndarray:
    """The largest error of each row, in bf16 ulp of the row's largest |logit|.

    Of accumulated rounding, small values lose as much as large ones: their own ulp says nothing.
    """
    largest = np.abs(reference).max(axis=-1)
    ulp = np.exp2(np.floor(np.log2(largest)) - _BF16_DIGITS)
    return np.asarray(np.abs(reference - found).max(axis=-1) / ulp)
