"""Loops that read a block of rows once: products with V, sweeps of U, and sums over the rows while they are in cache.

Written for :mod:`fedfactor.linalg.compiled.compile`; :mod:`fedfactor.linalg.single_pass` calls them. Rows are
worked on in groups of `lanes`, side by side: W and B hold a group transposed (k × lanes), so that a coordinate of
all its rows is one contiguous vector. The last group is padded, and every row sees the same
arithmetic wherever it stands.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

# Letters of the arguments: see compiled.py.
PLANS = {
    "dense_rows": ("rTRRRWnnnnstnnnQQWWWWDn", "contract"),
    "sparse_rows": ("iidRRRRRWWWnnnstnnnQQWWWWWI", "contract"),
    "sparse_sums": ("iidRRnnnW", "contract"),
    "masked_rows": ("RbRTRRRWnnnstRdnnnQQQWBWWWWWWWWBIZZED", "contract"),
    "transpose": ("RWnn", "contract"),
    "turned_columns": ("RnW", "contract"),
    "add_copies": ("QnnWnn", "contract"),
    "sweep_rows": ("rrRRwnnnstWWQ", "contract"),
}

_BUILT = (
    "dot_tile",
    "outer_tile",
    "outer_column",
    "coordinate",
    "fitted_tile",
    "fitted_column",
    "turn_tile",
    "own_coordinate",
    "take_seen",
    "gram_tile",
    "add_kinds",
    "group_gram",
    "gather_quarter",
    "gather_half",
    "gather_one",
    "gather_more",
    "gather_two",
    "gather_four",
    "scatter_quarter",
    "scatter_half",
    "scatter_one",
    "scatter_more",
    "scatter_two",
    "scatter_four",
)
dot_tile = outer_tile = outer_column = coordinate = fitted_tile = fitted_column = cast("Any", None)
turn_tile = take_seen = gram_tile = add_kinds = own_coordinate = cast("Any", None)
gather_quarter = gather_half = gather_one = gather_more = gather_two = gather_four = group_gram = cast("Any", None)
scatter_quarter = scatter_half = scatter_one = scatter_more = scatter_two = scatter_four = cast("Any", None)
TILE = ROWS = MASKED = ACROSS = 0
OFTEN = 32
"""Stored cells to a column, on average, that are summed in single precision before they are moved to double."""
LONG = 1024
"""Dense rows that are, and stored cells of any one column."""
STRETCH = 256
"""Stored cells of one column that are."""


def prepare(numba) -> None:
    """Build the vector code, once, before the first loop is compiled."""
    global TILE, ROWS, MASKED, ACROSS
    if TILE:
        return
    from fedfactor.linalg.compiled import vector_code as vectors

    room = globals()
    room.update({name: getattr(vectors, name) for name in _BUILT})
    plain = (sweep_group, load_group, gather, scatter, flush, flush_often, exchange, own_grams, list_kinds, sweep_own)
    room.update({loop.__name__: numba.njit(loop, nogil=True) for loop in (*plain, dots)})
    free = {"contract", "reassoc", "nsz"}
    room.update({loop.__name__: numba.njit(loop, nogil=True, fastmath=free) for loop in (add_gram, overlap)})
    ROWS = vectors.rows_of_tile()
    TILE = vectors.TILE
    MASKED = vectors.MASKED
    ACROSS = vectors.width(4)


def sweep_group(W, B, G, inverse, k, sweeps, tol):
    """Sweep over the coordinates of a group of rows; with a tolerance, rows that have settled rest."""
    lanes = W.shape[1]
    size = W.itemsize
    w = W.ctypes.data
    b = B.ctypes.data
    g = G.ctypes.data
    if tol <= 0:
        for _ in range(sweeps):
            for t in range(k):
                if inverse[0, t] > 0:
                    coordinate(W, w, b, g + t * G.shape[1] * size, inverse[0, t], t, k, 0, 0)
        return
    live = np.ones(lanes, W.dtype)
    moved = np.zeros(lanes)
    first = np.zeros(lanes)
    for sweep in range(sweeps):
        for j in range(lanes):
            moved[j] = 0
        for t in range(k):
            if inverse[0, t] > 0:
                coordinate(W, w, b, g + t * G.shape[1] * size, inverse[0, t], t, k, live.ctypes.data, moved.ctypes.data)
        going = False
        for j in range(lanes):
            if sweep == 0:
                first[j] = moved[j]
            if moved[j] <= tol * tol * first[j]:
                live[j] = 0
            elif live[j] > 0:
                going = True
        if not going:
            break


def add_gram(W, H):
    """Add the products of the rows of W with each other to H."""
    k, lanes = W.shape
    whole = k - k % TILE
    for t in range(0, whole, TILE):
        for q in range(0, t + 1, TILE):
            group_gram(W, W.ctypes.data, lanes, t, q, H.ctypes.data, H.shape[1], t - q)
    for t in range(whole, k):
        for q in range(t + 1):
            total = W[0, 0] - W[0, 0]
            for j in range(lanes):
                total += W[t, j] * W[q, j]
            H[t, q] += total
            if q < t:
                H[q, t] += total


def exchange(source, row, column, rows, columns, out, to_row, to_column):
    """Write rows and columns of `source`, from these on, to `out`, exchanged, by tiles; the last ones overlap."""
    size = out.itemsize
    lds = source.shape[1]
    ldo = out.shape[1]
    step = ACROSS * 4 // size
    if rows < step or columns < step:
        for start in range(0, rows, 32):
            for q in range(columns):
                for j in range(start, min(start + 32, rows)):
                    out[to_row + q, to_column + j] = source[row + j, column + q]
        return
    first = source.ctypes.data + (row * lds + column) * size
    target = out.ctypes.data + (to_row * ldo + to_column) * size
    for j in range(0, rows, step):
        j = min(j, rows - step)
        for q in range(0, columns, step):
            q = min(q, columns - step)
            turn_tile(source, first + (j * lds + q) * size, lds, target + (q * ldo + j) * size, ldo)


def load_group(U, top, count, W):
    """Put rows of U side by side, and zeros after them."""
    k = U.shape[1]
    exchange(U, top, 0, count, k, W, 0, 0)
    for t in range(k):
        for j in range(count, W.shape[1]):
            W[t, j] = 0


def dots(V, rows, ldx, count, whole, ends, B, kept):
    """Fill B with the products of `count` rows with V, in stretches of columns for which V stays in cache."""
    padded, lanes = B.shape
    across = V.shape[3]
    size = V.itemsize
    tile = V.shape[1] * TILE * across * size
    v = V.ctypes.data
    b = B.ctypes.data
    place = kept.ctypes.data
    stretch = max(16, 65536 // (padded * across * size))
    for start in range(0, max(whole, 1), stretch):
        stop = min(start + stretch, whole)
        if whole - stop < stretch // 2:  # no short rest
            stop = whole
        for i in range(0, count, ROWS):
            for q in range(padded // TILE):
                here = place + (i // ROWS * (padded // TILE) + q) * ROWS * TILE * across * size
                soon = rows + min(i + ROWS + q % ROWS, count - 1) * ldx * size
                later_on = rows + min(i + ROWS + (q + padded // TILE) % ROWS, count - 1) * ldx * size
                dot_tile(
                    V,
                    rows,
                    ldx,
                    i,
                    count - 1,
                    whole,
                    ends,
                    v + q * tile,
                    b + q * TILE * lanes * size,
                    lanes,
                    start,
                    stop,
                    here,
                    soon,
                    later_on,
                )
        if stop == whole:
            break


def dense_rows(
    X, V, G, inverse, U, out, start, stop, head, sweeps, l1, tol, fit, sums, more, A, H, part, W, B, ends, kept, group
):
    """Improve rows ``start:stop`` of U for the rows of X, and add their sums to A and H.

    The cells of a row lie side by side. Its first `head` cells, and those that do not fill a register at its end, are
    copied and padded; the others are read where they are. V lies in packed tiles: before, whole registers, after; the
    columns of A, which is in double precision as H is, in the same order. Sums are taken in `part` (zero before and
    after) and moved to A from time to time: added to what is there with `more`, else in its place. With ``fit = 0`` U
    stays as it is; with ``sums = 0`` nothing is added. `W`, `B`, `ends` and `kept` are scratch. So many rows as make a
    `group` are worked on together, and meanwhile the next ones are fetched.
    """
    m = X.shape[1]
    k = U.shape[1]
    padded, lanes = W.shape
    across = ends.shape[1] // 2
    whole = V.shape[1] - 2
    rest = m - head - whole * across
    size = X.itemsize
    ldx = X.strides[0] // size
    w = W.ctypes.data
    a = part.ctypes.data
    e = ends.ctypes.data
    lda = part.shape[1]
    zero = l1 - l1
    pending = 0
    for top in range(start, stop, group):
        count = min(group, stop - top)
        rows = X.ctypes.data + top * X.strides[0] + head * size
        for j in range(count):
            for c in range(head):
                ends[j, across - head + c] = X[top + j, c]
            for c in range(rest):
                ends[j, across + c] = X[top + j, m - rest + c]
        load_group(U, top, count, W)
        if fit:
            dots(V, rows, ldx, count, whole, e, B, kept)
            if l1 != zero:
                for t in range(k):
                    for j in range(lanes):
                        B[t, j] -= l1
            sweep_group(W, B, G, inverse, k, sweeps, tol)
            exchange(W, 0, 0, k, count, out, top, 0)
            for t in range(k):
                for j in range(count, lanes):
                    W[t, j] = zero
        if sums:
            for q in range(0, padded, TILE):
                u = w + q * lanes * size
                line = a + q * lda * size
                outer_column(V, part, e, 2 * across, count, u, lanes, line, lda)
                outer_column(
                    V, part, e + across * size, 2 * across, count, u, lanes, line + (whole + 1) * across * size, lda
                )
            soon = rows + group * ldx * size
            for c in range(0, whole - ROWS + 1, ROWS):
                x = rows + c * across * size
                for q in range(0, padded, TILE):
                    cell = a + (q * lda + (c + 1) * across) * size
                    outer_tile(V, part, x, ldx, count, w + q * lanes * size, lanes, cell, lda, soon)
                    soon += count * across * size
            for c in range(whole - whole % ROWS, whole):
                x = rows + c * across * size
                for q in range(0, padded, TILE):
                    cell = a + (q * lda + (c + 1) * across) * size
                    outer_column(V, part, x, ldx, count, w + q * lanes * size, lanes, cell, lda)
            add_gram(W, H)
            pending += count
            if pending > LONG or top + count == stop:
                flush(part, A, more)
                pending = 0
                more = 1


def own_grams(seen, count, m, together, Vt, G, across, tiles, kinds, one, codes, cells, own, sizes):
    """Fill `own` with the products of the components of V over the observed cells of each of `count` rows.

    Blocks of TILE components by TILE others lie one after the other, those on and below the diagonal, in `own` with the
    rows side by side; `tiles` lists those that are summed at once. So many rows as stand `together` share the work: a
    column is summed once for those of them that count it. Rows with few missing cells count those, and take them off
    the products over all cells, G.
    """
    many = G.shape[1]
    ldv = Vt.shape[1]
    size = Vt.itemsize
    many_kinds = 1 << together
    v = Vt.ctypes.data
    at = cells.ctypes.data
    first = kinds.ctypes.data
    base = np.zeros(together, Vt.dtype)
    sign = np.ones(together, Vt.dtype)
    begin = np.zeros(many_kinds, np.int64)
    held = np.zeros(many_kinds, np.int64)
    ends = np.zeros((4, many_kinds), np.uint32)
    for j in range(0, count, together):
        list_kinds(seen, j, m, together, codes, cells, begin, held, ends)
        away = 0  # which of the rows count their missing cells
        for b in range(together):
            known = 0
            for kind in range(many_kinds):
                known += held[kind] * (kind >> b & 1)
            sizes[j + b] = known
            off = 1 if 2 * known > m else 0
            away |= off << b
            base[b] = off
            sign[b] = 1 - 2 * off
        for kind in range(many_kinds):
            if kind == away:  # none of these rows counts these cells
                continue
            here = first + (kind ^ away) * many * size
            listed = at + begin[kind] * 4
            for tile in range(tiles.shape[0]):
                gram_tile(Vt, tiles[tile, 0], listed, held[kind], v, ldv, tiles[tile, 1], tiles[tile, 2], here)
        add_kinds(
            Vt,
            together,
            first,
            many,
            G.ctypes.data,
            base.ctypes.data,
            sign.ctypes.data,
            one.ctypes.data + j * many * size,
            many // across,
        )
    o = own.ctypes.data
    source = one.ctypes.data
    lanes = own.shape[1]
    for j in range(0, count, across):
        for place in range(0, many, across):
            turn_tile(Vt, source + (j * many + place) * size, many, o + (place * lanes + j) * size, lanes)


def list_kinds(seen, j, m, together, codes, cells, begin, held, ends):
    """List the columns by which of a few rows see them: bit b of a kind is row ``j + b``.

    Those of a kind are the `held` ones of `cells` from `begin` on, in their order. Four quarters of the columns are
    gone through side by side, so that many columns of one kind do not wait for each other.
    """
    for c in range(m):
        codes[0, c] = seen[j + together - 1, c]
    for b in range(together - 1):
        for c in range(m):
            codes[0, c] = codes[0, c] + codes[0, c] + seen[j + together - 2 - b, c]
    for kind in range(held.size):
        for part in range(4):
            ends[part, kind] = 0
    quarter = m // 4
    first = codes[0, :quarter]
    second = codes[0, quarter : 2 * quarter]
    third = codes[0, 2 * quarter : 3 * quarter]
    fourth = codes[0, 3 * quarter :]
    for c in range(quarter):
        ends[0, first[c]] += 1
        ends[1, second[c]] += 1
        ends[2, third[c]] += 1
        ends[3, fourth[c]] += 1
    for c in range(quarter, m - 3 * quarter):
        ends[3, fourth[c]] += 1
    place = 0
    for kind in range(held.size):
        begin[kind] = place
        for part in range(4):
            many = ends[part, kind]
            ends[part, kind] = place
            place += many
        held[kind] = place - begin[kind]
    for c in range(quarter):
        cells[ends[0, first[c]]] = c
        cells[ends[1, second[c]]] = quarter + c
        cells[ends[2, third[c]]] = 2 * quarter + c
        cells[ends[3, fourth[c]]] = 3 * quarter + c
        ends[0, first[c]] += 1
        ends[1, second[c]] += 1
        ends[2, third[c]] += 1
        ends[3, fourth[c]] += 1
    for c in range(quarter, m - 3 * quarter):
        cells[ends[3, fourth[c]]] = 3 * quarter + c
        ends[3, fourth[c]] += 1


def sweep_own(W, B, own, places, count, k, sweeps, tol, l2, ridge, sizes, m, G):
    """Sweep over the coordinates of rows that each have a Gram matrix of their own; return the ridge that they pay.

    A component of which hardly anything is left where missing cells were taken off counts as unseen.
    """
    lanes = W.shape[1]
    zero = W[0, 0] - W[0, 0]
    weight = np.zeros(lanes, W.dtype)
    live = np.ones(lanes, W.dtype)
    mean = np.zeros(lanes, W.dtype)
    bound = np.zeros(lanes, W.dtype)
    moved = np.zeros(lanes)
    first = np.zeros(lanes)
    squares = np.zeros(lanes)
    b = B.ctypes.data
    w = W.ctypes.data
    o = own.ctypes.data
    p = places.ctypes.data
    tracked, gone = (live.ctypes.data, moved.ctypes.data) if tol > 0 else (0, 0)
    inverse = np.zeros((k, lanes), W.dtype)
    r = inverse.ctypes.data
    size = W.itemsize
    least = 64 * np.finfo(G.dtype).eps
    for j in range(count):
        known = max(sizes[j], 1)
        weight[j] = (ridge[0] + (ridge[1] + ridge[2] / known) / known) / k
        bound[j] = least if 2 * sizes[j] > m else zero
    for j in range(count, lanes):
        bound[j] = np.inf  # no row: nothing is seen
    for t in range(k):
        place = places[t, t]
        whole = G[0, place]
        for j in range(lanes):
            here = own[place, j]
            here = here if here > bound[j] * whole else zero
            own[place, j] = here
            mean[j] += here
    for j in range(lanes):
        weight[j] *= mean[j]
    for t in range(k):
        place = places[t, t]
        extra = l2[0, t]
        for j in range(lanes):
            here = own[place, j]
            inverse[t, j] = 1 / (here + extra + weight[j]) if here > zero else zero
    for sweep in range(sweeps):
        for j in range(lanes):
            moved[j] = 0
        for t in range(k):
            own_coordinate(W, w, b, o, p + t * k * 8, r + t * lanes * size, t, k, tracked, gone)
        if tol > 0:
            going = False
            for j in range(count):
                if sweep == 0:
                    first[j] = moved[j]
                if moved[j] <= tol * tol * first[j]:
                    live[j] = zero
                elif live[j] > 0:
                    going = True
            if not going:
                break
    for t in range(k):
        for j in range(lanes):
            squares[j] += np.float64(W[t, j]) * np.float64(W[t, j])
    paid = 0.0
    for j in range(count):
        paid += np.float64(weight[j]) * squares[j]
    return paid


def masked_rows(
    X,
    M,
    V,
    packed,
    Vt,
    G,
    U,
    out,
    start,
    stop,
    sweeps,
    l1,
    tol,
    l2,
    ridge,
    fit,
    sums,
    together,
    N,
    D,
    H,
    Y,
    seen,
    W,
    B,
    Wt,
    F,
    own,
    one,
    kinds,
    ends,
    codes,
    cells,
    tiles,
    places,
    told,
    kept,
):
    """Do for rows with missing cells what :func:`dense_rows` does.

    A byte of M is one where a cell was observed. N and D, in double precision, are the sums over rows of U times the
    observed cells, and times what U and V make of them. V is padded to whole registers, `packed` and Vt are V in tiles
    and transposed, G is as in :func:`own_grams`, where `places` states what lies where. A group of rows is copied into
    Y and `seen` first, aligned, with zeros where nothing was observed. The squared error of the observed cells, and
    what the rows pay as a ridge, are added to `told`.
    """
    m = X.shape[1]
    k = U.shape[1]
    padded, lanes = W.shape
    across = ends.shape[1] // 2
    whole = packed.shape[1] - 2
    size = X.itemsize
    v = V.ctypes.data
    w = W.ctypes.data
    y = Y.ctypes.data
    e = ends.ctypes.data
    f = F.ctypes.data
    wt = Wt.ctypes.data
    s = seen.ctypes.data
    n = N.ctypes.data
    d = D.ctypes.data
    ldy = Y.shape[1]
    lds = seen.shape[1]
    lda = N.shape[1]
    ldv = V.shape[1]
    ldf = F.shape[1]
    squares = np.zeros(TILE * across, X.dtype)
    sq = squares.ctypes.data
    whole_cells = m // across * across
    sizes = np.zeros(lanes, np.int64)
    zero = l1 - l1
    for top in range(start, stop, MASKED):
        count = min(MASKED, stop - top)
        for j in range(count):
            at = (top + j) * m
            take_seen(X, X.ctypes.data + at * size, M.ctypes.data + at, m // across, y + j * ldy * size, s + j * lds)
            for c in range(whole_cells, m):
                here = M[top + j, c]
                seen[j, c] = 1 if here != 0 else 0
                Y[j, c] = X[top + j, c] if here != 0 else zero
        for j in range(count, MASKED):
            for c in range(m):
                seen[j, c] = 0
                Y[j, c] = zero
        load_group(U, top, count, W)
        if fit:
            dots(packed, y, ldy, count, whole, e, B, kept)
            for t in range(k):
                for j in range(count):
                    B[t, j] -= l1
            own_grams(seen, count, m, together, Vt, G, across, tiles, kinds, one, codes, cells, own, sizes)
            told[1] += sweep_own(W, B, own, places, count, k, sweeps, tol, l2, ridge, sizes, m, G)
            for j in range(count):
                for t in range(k):
                    out[top + j, t] = W[t, j]
        if sums:
            for j in range(lanes):
                for t in range(k):
                    Wt[j, t] = W[t, j]
            c = 0
            while c < whole:
                many = ROWS if c + ROWS <= whole else 1
                left = c * across
                for i in range(0, count, TILE):
                    u = wt + i * k * size
                    marks = s + i * lds + left
                    here = f + i * ldf * size
                    x = y + (i * ldy + left) * size
                    if many == ROWS:
                        fitted_tile(V, v + left * size, ldv, k, u, k, marks, lds, here, ldf, x, ldy, sq)
                    else:
                        fitted_column(V, v + left * size, ldv, k, u, k, marks, lds, here, ldf, x, ldy, sq)
                for q in range(0, padded, TILE):
                    u = w + q * lanes * size
                    place = (q * lda + left) * 8
                    if many == ROWS:
                        outer_tile(V, N, y + left * size, ldy, count, u, lanes, n + place, lda, y)
                        outer_tile(V, D, f, ldf, count, u, lanes, d + place, lda, y)
                    else:
                        outer_column(V, N, y + left * size, ldy, count, u, lanes, n + place, lda)
                        outer_column(V, D, f, ldf, count, u, lanes, d + place, lda)
                for each in range(squares.size):
                    told[0] += squares[each]
                    squares[each] = zero
                c += many
            add_gram(W, H)


def transpose(wide, out, first, last):
    """Write the transpose of rows ``first:last`` of `wide`, its first columns, to `out`."""
    exchange(wide, first, 0, last - first, out.shape[0], out, 0, first)


def turned_columns(wide, first, out):
    """Write the columns of `wide` from `first` on to `out`, as many as it has rows, as its rows."""
    exchange(wide, 0, first, wide.shape[0], out.shape[0], out, 0, 0)


def overlap(P, Q, rows):
    """Return the sum of products of the cells of the first rows; those of a row are summed in their own precision."""
    found = 0.0
    for t in range(rows):
        total = P[0, 0] - P[0, 0]
        for j in range(P.shape[1]):
            total += P[t, j] * Q[t, j]
        found += total
    return found


def sweep_rows(S, P, G, inverse, out, start, stop, sweeps, l1, tol, W, B, H):
    """Improve columns ``start:stop`` of `S` (k × n), which are the rows of a factor, for the products `P` (k × n).

    Where H has rows, the products of the coordinates with each other are added to them, and to one more those with P
    (less `l1`), in double precision.
    """
    k = S.shape[0]
    lanes = W.shape[1]
    for top in range(start, stop, lanes):
        count = min(lanes, stop - top)
        for t in range(k):
            for j in range(count):
                W[t, j] = S[t, top + j]
                B[t, j] = P[t, top + j] - l1
            for j in range(count, lanes):
                W[t, j] = 0
                B[t, j] = 0
        sweep_group(W, B, G, inverse, k, sweeps, tol)
        if H.shape[0] > 0:
            add_gram(W, H)
            H[k, 0] += overlap(W, B, k)
        for t in range(k):
            for j in range(count):
                out[t, top + j] = W[t, j]


def gather(number, kind, i, x, begin, end, d, registers, e, rest, row, across):
    """Write the sum of stored cells ``begin:end`` times rows of D, and of E, to `row`, a few registers at a time.

    Rows of D fill registers, each of which lies in one line of the cache; what is left of a row, at most a quarter of a
    register (or half, without a whole one), is in E, where several rows share a line.

    `number` and `kind` are of the types of cells and indices; `i`, `x`, `d`, `e` and `row` are where indices, cells, D,
    E and the row lie: this is called for every row, and to hand over an array takes as long as a dozen cells.
    """
    ldd = registers * across
    size = 4 * ACROSS
    at = 0
    while at < registers:
        left = registers - at
        if left >= 4:
            gather_four(number, kind, i, x, begin, end, d + at * size, ldd, e, row + at * size)
            at += 4
        elif left >= 2:
            gather_two(number, kind, i, x, begin, end, d + at * size, ldd, e, row + at * size)
            at += 2
        else:
            if rest > 0:
                gather_more(number, kind, i, x, begin, end, d + at * size, ldd, e, row + at * size)
                rest = 0
            else:
                gather_one(number, kind, i, x, begin, end, d + at * size, ldd, e, row + at * size)
            at += 1
    if 2 * rest == across:
        gather_half(number, kind, i, x, begin, end, d, ldd, e, row + at * size)
    elif rest > 0:
        gather_quarter(number, kind, i, x, begin, end, d, ldd, e, row + at * size)


def scatter(number, kind, i, x, begin, end, row, d, registers, e, rest, across):
    """Add stored cells ``begin:end`` times `row` to rows of D, and of E, which share out its numbers as above."""
    ldd = registers * across
    size = 4 * ACROSS
    at = 0
    while at < registers:
        left = registers - at
        u = row + at * size
        to = d + at * size
        if left >= 4:
            scatter_four(number, kind, i, x, begin, end, u, to, ldd, e)
            at += 4
        elif left >= 2:
            scatter_two(number, kind, i, x, begin, end, u, to, ldd, e)
            at += 2
        else:
            if rest > 0:
                scatter_more(number, kind, i, x, begin, end, u, to, ldd, e)
                rest = 0
            else:
                scatter_one(number, kind, i, x, begin, end, u, to, ldd, e)
            at += 1
    if 2 * rest == across:
        scatter_half(number, kind, i, x, begin, end, row + at * size, d, ldd, e)
    elif rest > 0:
        scatter_quarter(number, kind, i, x, begin, end, row + at * size, d, ldd, e)


def flush(part, A, more):
    """Move what was summed in single precision to A, in double: add it with `more`, else put it in place."""
    for j in range(A.shape[0]):
        if more:
            for t in range(A.shape[1]):
                A[j, t] += part[j, t]
        else:
            for t in range(A.shape[1]):
                A[j, t] = part[j, t]
        for t in range(A.shape[1]):
            part[j, t] = 0


def flush_often(indices, begin, end, held, part, first, second, A):
    """Count stored cells ``begin:end`` for their columns, in `held`; move the sums of a column that has many to A."""
    m = held.size
    for p in range(begin, end):
        column = indices[p]
        held[column] += 1
        if held[column] >= LONG:
            held[column] = 0
            for at, wide in ((column * first, first), (m * first + column * second, second)):
                for t in range(at, at + wide):
                    A[0, t] += part[0, t]
                    part[0, t] = 0


def add_copies(A, copies, left, out, first, last):
    """Add up copies of A, which lie below each other, in order; write rows ``first:last``, from column `left` on."""
    rows = A.shape[0] // copies
    m = out.shape[1]
    total = np.zeros(m)
    for t in range(first, last):
        for j in range(m):
            total[j] = A[t, left + j]
        for c in range(1, copies):
            for j in range(m):
                total[j] += A[c * rows + t, left + j]
        for j in range(m):
            out[t, j] = total[j]


def sparse_rows(
    indptr,
    indices,
    data,
    D,
    E,
    G,
    inverse,
    U,
    out,
    P,
    Q,
    start,
    stop,
    sweeps,
    l1,
    tol,
    fit,
    sums,
    across,
    A,
    H,
    W,
    B,
    part,
    S,
    T,
    held,
):
    """Do for stored cells what :func:`dense_rows` does; D and E are Vᵀ, see :func:`gather`, and A is transposed.

    A register holds `across` numbers. Sums are taken in `part`, which S and T share out as D and E do (zero before, and
    after too if they are moved), and moved to A, laid out alike, from time to time; without a row in A they stay. Where
    `held` has a number for each column, cells are counted, and the sums of a column with many are moved earlier. With
    ``sums = 2`` only H is filled, U is left in P and Q, and A is left to :func:`sparse_sums`. W and B have as many rows
    as D and E have columns.
    """
    k = U.shape[1]
    wide, lanes = W.shape
    zero = l1 - l1
    pending = 0
    found = np.zeros((lanes, (wide + across - 1) // across * across), W.dtype)
    line = np.zeros(found.shape[1], W.dtype)
    i = indices.ctypes.data
    x = data.ctypes.data
    d = D.ctypes.data
    e = E.ctypes.data
    f = found.ctypes.data
    r = line.ctypes.data
    s = S.ctypes.data
    z = T.ctypes.data
    step = found.shape[1] * W.itemsize
    number = W.dtype.type(0)
    kind = indices.dtype.type(0)
    registers = D.shape[1] // across
    rest = E.shape[1]
    for t in range(k, wide):
        for j in range(lanes):
            W[t, j] = zero
    for top in range(start, stop, lanes):
        count = min(lanes, stop - top)
        load_group(U, top, count, W)
        if fit:
            for j in range(count):
                begin = indptr[top + j]
                end = indptr[top + j + 1]
                row = f + j * step
                gather(number, kind, i, x, begin, end, d, registers, e, rest, row, across)
            found[count:] = zero
            exchange(found, 0, 0, lanes, k, B, 0, 0)
            if l1 != zero:
                for t in range(k):
                    for j in range(lanes):
                        B[t, j] -= l1
            sweep_group(W, B, G, inverse, k, sweeps, tol)
            exchange(W, 0, 0, k, count, out, top, 0)
            for t in range(k):
                for j in range(count, lanes):
                    W[t, j] = zero
        if sums == 2:
            exchange(W, 0, 0, P.shape[1], count, P, top, 0)
            exchange(W, P.shape[1], 0, Q.shape[1], count, Q, top, 0)
        if sums:
            add_gram(W, H)
        if sums == 1:
            for j in range(count):
                for t in range(k):
                    line[t] = W[t, j]
                begin = indptr[top + j]
                end = indptr[top + j + 1]
                scatter(number, kind, i, x, begin, end, r, s, registers, z, rest, across)
            if held.size > 0:
                flush_often(indices, indptr[top], indptr[top + count], held, part, D.shape[1], E.shape[1], A)
            pending += indptr[top + count] - indptr[top]
            if A.shape[0] > 0 and pending * wide > OFTEN * part.size:
                flush(part, A, 1)
                pending = 0
    if sums == 1 and A.shape[0] > 0:
        flush(part, A, 1)


def sparse_sums(indptr, indices, data, P, Q, start, stop, across, A):
    """Write columns ``start:stop`` of UᵀX to A, from X by columns; P and Q are U, see :func:`gather`.

    Many cells of a column are summed in stretches, and those in double precision.
    """
    k = A.shape[0]
    lanes = 8 * across
    found = np.zeros((lanes, P.shape[1] + across), P.dtype)
    total = np.zeros(k)
    i = indices.ctypes.data
    x = data.ctypes.data
    p = P.ctypes.data
    q = Q.ctypes.data
    f = found.ctypes.data
    registers = P.shape[1] // across
    rest = Q.shape[1]
    step = found.shape[1] * P.itemsize
    number = P.dtype.type(0)
    kind = indices.dtype.type(0)
    for top in range(start, stop, lanes):
        count = min(lanes, stop - top)
        for j in range(count):
            begin = indptr[top + j]
            end = indptr[top + j + 1]
            row = f + j * step
            if end - begin <= STRETCH:
                gather(number, kind, i, x, begin, end, p, registers, q, rest, row, across)
                continue
            total[:] = 0
            for first in range(begin, end, STRETCH):
                gather(number, kind, i, x, first, min(first + STRETCH, end), p, registers, q, rest, row, across)
                for t in range(k):
                    total[t] += found[j, t]
            found[j, :k] = total
        exchange(found, 0, 0, count, k, A, 0, top)
