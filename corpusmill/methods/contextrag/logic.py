"""Lukasiewicz logic and fuzzy formal concepts (ContextRAG, arXiv 2605.19735, sections 3.1 to 3.3).

Truth values are numbers from 0 to `one`: fractions with one = 1.0, whole numbers with one = 64 or 10,000. On whole
numbers, and on fractions of a power of two, all is exact; on decimal fractions rounding breaks the laws (0.1 + 0.2 <=
0.3 is false), so that memberships are kept as whole numbers of 1/10,000. A fuzzy set of objects (an extent) is an array
[objects], one of attributes (an intent) [attributes], and a context is `incidence` [objects, attributes].
"""

import numpy as np


def t_norm(a: np.ndarray, b: np.ndarray, one: float = 1.0) -> np.ndarray:
    """a (x) b = max(0, a + b - 1), element by element (equation 4)."""
    return np.maximum(0, _number(a) + _number(b) - one)


def residuum(a: np.ndarray, b: np.ndarray, one: float = 1.0) -> np.ndarray:
    """a -> b = min(1, 1 - a + b), element by element (equation 5)."""
    return np.minimum(one, one - _number(a) + _number(b))


def negation(a: np.ndarray, one: float = 1.0) -> np.ndarray:
    """a -> 0 = 1 - a."""
    return one - _number(a)


def up(extent: np.ndarray, incidence: np.ndarray, one: float = 1.0) -> np.ndarray:
    """[attributes]: how far each is had by all of the extent, inf_g (A(g) -> I(g, m)) (equation 6); `one` of no object.

    Raises ValueError on shapes that do not fit and on values out of 0 to `one`.
    """
    extent, incidence = _checked("extent", extent, incidence, 0, one)
    return residuum(extent[:, None], incidence, one).min(axis=0, initial=one)


def down(intent: np.ndarray, incidence: np.ndarray, one: float = 1.0) -> np.ndarray:
    """[objects]: how far each has all of the intent, inf_m (B(m) -> I(g, m)) (equation 7); `one` of no attribute.

    Raises ValueError as `up` does.
    """
    intent, incidence = _checked("intent", intent, incidence, 1, one)
    return residuum(intent, incidence, one).min(axis=1, initial=one)


def closure(extent: np.ndarray, incidence: np.ndarray, one: float = 1.0) -> np.ndarray:
    """The least extent of a concept that holds `extent`: down(up(A)). Raises ValueError as `up` does."""
    return down(up(extent, incidence, one), incidence, one)


def soft_join(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The union max(A1, A2). Mostly it is not the extent of a concept: `join` is."""
    return np.maximum(first, second)


def soft_meet(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The intersection min(A1, A2) (equation 9): of two concepts' extents it is the extent of their meet."""
    return np.minimum(first, second)


def join(first: np.ndarray, second: np.ndarray, incidence: np.ndarray, one: float = 1.0) -> np.ndarray:
    """The extent of the least concept above both: the closure of the union (equation 8). Raises ValueError as `up`."""
    return closure(soft_join(first, second), incidence, one)


def _number(values: np.ndarray) -> np.ndarray:
    """Small and unsigned integers would overflow in a + b or b - a."""
    values = np.asarray(values)
    return values.astype(np.int64) if values.dtype.kind in "bui" else values


def _checked(
    name: str, values: np.ndarray, incidence: np.ndarray, axis: int, one: float
) -> tuple[np.ndarray, np.ndarray]:
    values, incidence = _number(values), _number(incidence)
    if incidence.ndim != 2 or values.shape != (incidence.shape[axis],):
        raise ValueError(f"{name} of shape {values.shape} does not fit a context of shape {incidence.shape}")
    for what, array in ((name, values), ("incidence", incidence)):
        if array.size and not (array.min() >= 0 and array.max() <= one):  # NaN is refused too
            raise ValueError(f"{what} has values from {array.min()} to {array.max()}, expected 0 to {one}")
    return values, incidence
