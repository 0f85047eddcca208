"""PyTorch: Fourier transforms (cuFFT)."""

from checks import close, main, need_torch, test

torch = need_torch()


@test
def one_dimension_of_every_kind_of_length():
    for length in (8, 1024, 1000, 997, 1 << 16):  # powers of two, small factors, a prime
        x = torch.randn(4, length, dtype=torch.complex64)
        close(torch.fft.fft(x.cuda()), torch.fft.fft(x), 1e-4, f"a transform of {length} numbers")
        close(torch.fft.ifft(torch.fft.fft(x.cuda())), x, 1e-4, f"there and back, {length} numbers")


@test
def real_input():
    x = torch.randn(3, 500, dtype=torch.float64)
    close(torch.fft.rfft(x.cuda()), torch.fft.rfft(x), 1e-12)
    close(torch.fft.irfft(torch.fft.rfft(x.cuda()), n=500), x, 1e-12)


@test
def two_and_three_dimensions():
    x = torch.randn(2, 48, 60)
    close(torch.fft.rfft2(x.cuda()), torch.fft.rfft2(x), 1e-4)
    y = torch.randn(16, 20, 24, dtype=torch.complex128)
    close(torch.fft.fftn(y.cuda()), torch.fft.fftn(y), 1e-12)


@test
def half_precision():
    x = torch.randn(4, 256)
    close(torch.fft.rfft(x.half().cuda()).to(torch.complex64), torch.fft.rfft(x.half().float()), 1e-2)


@test
def convolution_theorem():
    a, b = torch.randn(300, device="cuda", dtype=torch.float64), torch.randn(300, device="cuda", dtype=torch.float64)
    product = torch.fft.irfft(torch.fft.rfft(a, 600) * torch.fft.rfft(b, 600), n=600)[:599]
    want = torch.nn.functional.conv1d(a.cpu().view(1, 1, -1), b.cpu().flip(0).view(1, 1, -1), padding=299).view(-1)
    close(product, want, 1e-10)


@test
def gradient():
    x = torch.randn(128, dtype=torch.float64)
    gradients = []
    for device in ("cpu", "cuda"):
        y = x.to(device).detach().clone().requires_grad_()
        torch.fft.rfft(y).abs().sum().backward()
        gradients.append(y.grad)
    close(gradients[1], gradients[0], 1e-10)


@test
def short_time_transform():
    x = torch.randn(4000)
    window = torch.hann_window(256)
    got = torch.stft(x.cuda(), 256, window=window.cuda(), return_complex=True)
    close(got, torch.stft(x, 256, window=window, return_complex=True), 1e-4)
    close(torch.istft(got, 256, window=window.cuda(), length=4000), x, 1e-4)


if __name__ == "__main__":
    main()
