"""PyTorch: linear algebra (cuSOLVER, cuBLAS, MAGMA)."""

from checks import close, main, need_torch, require, test

torch = need_torch()

A = torch.randn(96, 96, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
SYMMETRIC = A @ A.T + 96 * torch.eye(96, dtype=torch.float64)
B = torch.randn(96, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(10))


@test
def solve():
    close(A.cuda() @ torch.linalg.solve(A.cuda(), B.cuda()), B, 1e-9)
    batch = SYMMETRIC.expand(10, -1, -1).clone().cuda()
    close(batch @ torch.linalg.solve(batch, B.cuda().expand(10, -1, -1)), B.expand(10, -1, -1), 1e-9, "a batch")
    close(torch.linalg.solve(SYMMETRIC.float().cuda(), B.float().cuda()), torch.linalg.solve(SYMMETRIC, B), 1e-4, "float32")


@test
def inverse_and_determinant():
    close(torch.linalg.inv(SYMMETRIC.cuda()), torch.linalg.inv(SYMMETRIC), 1e-9)
    close(torch.linalg.slogdet(A.cuda()).logabsdet, torch.linalg.slogdet(A).logabsdet, 1e-10)


@test
def cholesky():
    factor = torch.linalg.cholesky(SYMMETRIC.cuda())
    close(factor, torch.linalg.cholesky(SYMMETRIC), 1e-10)
    close(torch.cholesky_solve(B.cuda(), factor), torch.linalg.solve(SYMMETRIC, B), 1e-10, "cholesky_solve")


@test
def a_matrix_that_is_not_positive():
    try:
        torch.linalg.cholesky(-SYMMETRIC.cuda())
    except torch.linalg.LinAlgError:
        return
    raise AssertionError("a negative matrix was factored")


@test
def qr_and_least_squares():
    q, r = torch.linalg.qr(A[:, :40].cuda())
    close(q @ r, A[:, :40], 1e-10, "q times r")
    close(q.T @ q, torch.eye(40, dtype=torch.float64), 1e-10, "q transposed times q")
    close(torch.linalg.lstsq(A[:, :40].cuda(), B.cuda()).solution, torch.linalg.lstsq(A[:, :40], B).solution, 1e-9, "lstsq")


@test
def singular_values():
    u, s, v = torch.linalg.svd(A.cuda())
    close(u @ torch.diag(s) @ v, A, 1e-9, "the product")
    close(s, torch.linalg.svdvals(A), 1e-9, "the singular values")
    close(torch.linalg.matrix_norm(A.cuda(), 2), torch.linalg.matrix_norm(A, 2), 1e-9, "the norm")
    require(int(torch.linalg.matrix_rank(A[:, :1].cuda() @ A[:1].cuda())) == 1, "the rank of a product of two vectors is not 1")


@test
def eigenvalues():
    values, vectors = torch.linalg.eigh(SYMMETRIC.cuda())
    close(values, torch.linalg.eigvalsh(SYMMETRIC), 1e-9, "eigenvalues of a symmetric matrix")
    close(vectors @ torch.diag(values) @ vectors.T, SYMMETRIC, 1e-9, "the product")
    got = torch.linalg.eigvals(A.cuda()).cpu()
    want = torch.linalg.eigvals(A)
    close(got.abs().sort().values, want.abs().sort().values, 1e-9, "eigenvalues of a general matrix")
    batch = torch.stack([SYMMETRIC[:16, :16]] * 20).cuda()
    close(torch.linalg.eigvalsh(batch)[19], torch.linalg.eigvalsh(SYMMETRIC[:16, :16]), 1e-9, "a batch")


@test
def triangular_and_lu():
    upper = torch.triu(SYMMETRIC)
    got = torch.linalg.solve_triangular(upper.cuda(), B.cuda(), upper=True)
    close(got, torch.linalg.solve_triangular(upper, B, upper=True), 1e-9, "solve_triangular")
    p, l, u = torch.linalg.lu(A.cuda())
    close(p @ l @ u, A, 1e-9, "p l u")


@test
def exponential_and_powers():
    small = A[:20, :20] / 20
    close(torch.linalg.matrix_exp(small.cuda()), torch.linalg.matrix_exp(small), 1e-10, "matrix_exp")
    close(torch.linalg.matrix_power(small.cuda(), 5), torch.linalg.matrix_power(small, 5), 1e-10, "matrix_power")
    close(torch.einsum("ij,jk,lk->il", small.cuda(), small.cuda(), small.cuda()), small @ small @ small.T, 1e-10, "einsum")


if __name__ == "__main__":
    main()
