"""torchvision: ResNet-50 with random weights, training and inference."""

from checks import close, main, need, need_torch, require, test, value

torch = need_torch()
models = need("torchvision.models")


def network():
    torch.manual_seed(15)
    return models.resnet50(weights=None, num_classes=100)


@test
def inference_agrees_with_the_cpu():
    model = network().eval()
    x = torch.randn(2, 3, 160, 160)
    with torch.inference_mode():
        want = model(x)
        model.cuda()
        close(model(x.cuda()), want, 1e-3)
        half = model.to(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            close(half(x.cuda().to(memory_format=torch.channels_last)), want, 5e-2, "the result in bfloat16")


@test
def training():
    model = network().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    generator = torch.Generator().manual_seed(16)
    images = torch.randn(16, 3, 160, 160, generator=generator).pin_memory()
    classes = torch.arange(16) % 100
    losses = []
    for _ in range(12):
        x = images.to("cuda", non_blocking=True, memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), classes.cuda())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    require(losses[-1] < losses[0], f"the loss went from {losses[0]:.3f} to {losses[-1]:.3f}")
    value("first_loss", losses[0], 5e-3)


@test
def operations_of_torchvision_itself():
    ops = need("torchvision.ops")
    generator = torch.Generator().manual_seed(17)
    corners = torch.rand(200, 2, generator=generator) * 100
    boxes = torch.cat([corners, corners + 5 + torch.rand(200, 2, generator=generator) * 20], 1)
    scores = torch.rand(200, generator=generator)
    close(ops.nms(boxes.cuda(), scores.cuda(), 0.3), ops.nms(boxes, scores, 0.3), 0, "the boxes that remain")
    features = torch.randn(1, 4, 50, 50, generator=generator)
    rois = torch.tensor([[0.0, 3.0, 4.0, 30.0, 40.0]])
    close(ops.roi_align(features.cuda(), rois.cuda(), 7), ops.roi_align(features, rois, 7), 1e-4, "roi_align")


if __name__ == "__main__":
    main()
