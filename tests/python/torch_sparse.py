"""PyTorch: sparse matrices (cuSPARSE)."""

from checks import close, main, need_torch, require, test

torch = need_torch()


def sparse_matrix(rows=200, columns=150, share=0.05):
    dense = torch.randn(rows, columns, dtype=torch.float64)
    return torch.where(torch.rand(rows, columns) < share, dense, 0.0)


@test
def coordinates():
    dense, right = sparse_matrix(), torch.randn(150, 30, dtype=torch.float64)
    matrix = dense.to_sparse().cuda()
    close(matrix @ right.cuda(), dense @ right, 1e-12, "a product with a dense matrix")
    close((matrix + matrix).coalesce().to_dense(), 2 * dense, 1e-12, "a sum")
    close(torch.sparse.sum(matrix, 0), dense.sum(0), 1e-12, "sums of columns")
    require(matrix.coalesce().values().numel() == int((dense != 0).sum()), "the number of stored values is wrong")


@test
def compressed_rows():
    dense, right = sparse_matrix(), torch.randn(150, 30, dtype=torch.float64)
    matrix = dense.to_sparse_csr().cuda()
    close(matrix @ right.cuda(), dense @ right, 1e-12, "a product with a dense matrix")
    close(matrix @ right[:, 0].cuda(), dense @ right[:, 0], 1e-12, "a product with a vector")
    other = sparse_matrix(150, 80)
    close((matrix @ other.to_sparse_csr().cuda()).to_dense(), dense @ other, 1e-12, "a product of two sparse matrices")


@test
def triangular_solve():
    dense = torch.triu(sparse_matrix(100, 100)) + 3 * torch.eye(100, dtype=torch.float64)
    right = torch.randn(100, 4, dtype=torch.float64)
    got = torch.triangular_solve(right.cuda(), dense.to_sparse_csr().cuda(), upper=True).solution
    close(got, torch.linalg.solve(dense, right), 1e-10)


@test
def sampled_product():
    dense = sparse_matrix(60, 50, 0.1)
    a, b = torch.randn(60, 20, dtype=torch.float64), torch.randn(20, 50, dtype=torch.float64)
    got = torch.sparse.sampled_addmm(dense.to_sparse_csr().cuda(), a.cuda(), b.cuda())
    close(got.to_dense(), torch.where(dense != 0, dense + a @ b, 0.0), 1e-12)


@test
def gradients_through_a_sparse_product():
    dense, right = sparse_matrix(40, 30, 0.2), torch.randn(30, 5, dtype=torch.float64)
    leaf = right.cuda().requires_grad_()
    torch.sparse.mm(dense.to_sparse().cuda(), leaf).sum().backward()
    close(leaf.grad, dense.T @ torch.ones(40, 5, dtype=torch.float64), 1e-12)


@test
def sparse_embedding():
    table = torch.nn.Embedding(1000, 16, sparse=True).cuda()
    before = table.weight.detach().clone()
    optimizer = torch.optim.SparseAdam(table.parameters(), lr=0.1)
    chosen = torch.tensor([3, 5, 5, 999], device="cuda")
    table(chosen).sum().backward()
    optimizer.step()
    changed = (table.weight != before).any(1).nonzero().flatten().tolist()
    require(changed == [3, 5, 999], f"the rows {changed} changed")


if __name__ == "__main__":
    main()
