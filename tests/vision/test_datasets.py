"""Data sets read from files that the tests write; clear errors where files are missing."""

from __future__ import annotations

import bz2
import gzip
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import metaop
from metaop.errors import ArgumentError, DatasetError
from metaop.utils.data import DataLoader
from metaop.vision import datasets, transforms

Image = pytest.importorskip("PIL.Image")
random = np.random.default_rng(0)


def pixels(*shape: int) -> np.ndarray:
    return random.integers(0, 256, shape).astype(np.uint8)


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def write_idx(path: Path, array: np.ndarray, packed: bool) -> None:
    code = {"uint8": 8, "int32": 12}[array.dtype.name]
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}i", *array.shape)
    raw = head + array.astype(array.dtype.newbyteorder(">")).tobytes()
    write(
        path.with_name(path.name + ".gz") if packed else path, gzip.compress(raw) if packed else raw
    )


def write_picture(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", ["MNIST/raw", "."])
def test_mnist(tmp_path: Path, packed: bool, folder: str) -> None:
    images, labels = pixels(5, 28, 28), pixels(5) % 10
    write_idx(tmp_path / folder / "t10k-images-idx3-ubyte", images, packed)
    write_idx(tmp_path / folder / "t10k-labels-idx1-ubyte", labels, packed)
    data = datasets.MNIST(tmp_path, train=False, transform=transforms.ToTensor(), download=True)
    assert len(data) == 5 and data.class_to_idx["3 - three"] == 3
    assert data.data.dtype is metaop.uint8 and data.targets.dtype is metaop.int64
    image, label = data[2]
    np.testing.assert_array_equal(image.numpy(), images[2:3].astype(np.float32) / np.float32(255))
    assert label == labels[2] and isinstance(label, int)
    batch = next(iter(DataLoader(data, batch_size=5)))
    assert batch[0].shape == (5, 1, 28, 28) and batch[1].tolist() == labels.tolist()
    assert str(data).splitlines()[:2] == ["Dataset MNIST", "    Number of datapoints: 5"]


def test_relatives_of_mnist(tmp_path: Path) -> None:
    images, labels = pixels(3, 28, 28), np.array([1, 25, 26], np.uint8)
    for kind in ("FashionMNIST", "KMNIST"):
        write_idx(tmp_path / kind / "raw/train-images-idx3-ubyte", images, True)
        write_idx(tmp_path / kind / "raw/train-labels-idx1-ubyte", labels, True)
        data = getattr(datasets, kind)(tmp_path)
        np.testing.assert_array_equal(np.asarray(data[1][0]), images[1])
        assert len(data.classes) == 10
    write_idx(tmp_path / "EMNIST/raw/emnist-letters-train-images-idx3-ubyte", images, True)
    write_idx(tmp_path / "EMNIST/raw/emnist-letters-train-labels-idx1-ubyte", labels, True)
    letters = datasets.EMNIST(tmp_path, "letters")
    assert [letters.classes[target] for target in letters.targets.tolist()] == ["a", "y", "z"]
    with pytest.raises(ArgumentError, match="split"):
        datasets.EMNIST(tmp_path, "numbers")
    extended = np.arange(24, dtype=np.int32).reshape(3, 8)
    write_idx(tmp_path / "QMNIST/raw/qmnist-train-images-idx3-ubyte", images, True)
    write_idx(tmp_path / "QMNIST/raw/qmnist-train-labels-idx2-int", extended, True)
    assert datasets.QMNIST(tmp_path, "train")[1][1] == 8
    rows = datasets.QMNIST(tmp_path, "train", compat=False)[1][1]
    assert rows.tolist() == extended[1].tolist()


def test_damaged_idx_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte"
    write_idx(path, pixels(2, 28, 28), False)
    write(path, path.read_bytes()[:-1])
    with pytest.raises(DatasetError, match=r"train-images-idx3-ubyte is damaged"):
        datasets.MNIST(tmp_path)
    write(path, b"no numbers")
    with pytest.raises(DatasetError, match="is not an idx file"):
        datasets.MNIST(tmp_path)


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("old", [False, True])
def test_cifar10(tmp_path: Path, protocol: int, old: bool) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    stored = {name: pixels(2, 3072) for name in datasets.CIFAR10.train_list}
    for number, (name, data) in enumerate(stored.items()):
        content: dict[Any, Any] = {"data": data, "labels": [number, 9], "filenames": ["a", "b"]}
        if old:  # with arrays as labels
            content["labels"] = list(np.array(content["labels"]))
        write(folder / name, pickle.dumps(content, protocol))
    names = [f"class {number}" for number in range(10)]
    write(folder / "batches.meta", pickle.dumps({"label_names": names}, protocol))
    data = datasets.CIFAR10(tmp_path, train=True)
    assert data.data.shape == (10, 32, 32, 3) and data.targets == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    image, label = data[4]
    expected = stored["data_batch_3"][0].reshape(3, 32, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(np.asarray(image), expected)
    assert label == 2 and data.classes == names and data.class_to_idx["class 7"] == 7


def test_binary_cifar(tmp_path: Path) -> None:
    records = pixels(3, 3074)
    write(tmp_path / "cifar-100-binary/test.bin", records.tobytes())
    write(tmp_path / "cifar-100-binary/fine_label_names.txt", "apple\nbee\n")
    data = datasets.CIFAR100(tmp_path, train=False)
    assert data.targets == records[:, 1].tolist() and data.classes == ["apple", "bee"]
    expected = records[2, 2:].reshape(3, 32, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(np.asarray(data[2][0]), expected)
    write(tmp_path / "cifar-100-binary/test.bin", records.tobytes()[:-5])
    with pytest.raises(DatasetError, match="not a multiple of the record"):
        datasets.CIFAR100(tmp_path, train=False)


class Malicious:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('code of a file ran')",))


def test_pickles_run_no_code(tmp_path: Path) -> None:
    write(tmp_path / "test_batch", pickle.dumps({"data": Malicious()}))
    with pytest.raises(DatasetError, match=r"cannot read .*test_batch.*exec"):
        datasets.CIFAR10(tmp_path, train=False)


def test_folders_of_pictures(tmp_path: Path) -> None:
    stored = {}
    for name in ("b/2.png", "a/1.png", "b/deep/3.png"):
        stored[name] = pixels(4, 5, 3)
        write_picture(tmp_path / name, stored[name])
    write(tmp_path / "a/notes.txt", "no picture")
    data = datasets.ImageFolder(tmp_path, transforms.ToTensor(), lambda label: label + 10)
    assert data.classes == ["a", "b"] and data.targets == [0, 1, 1]
    names = [str(Path(path).relative_to(tmp_path)) for path, _ in data.samples]
    assert names == ["a/1.png", "b/2.png", "b/deep/3.png"]
    image, label = data[2]
    expected = stored["b/deep/3.png"].transpose(2, 0, 1) / np.float32(255)
    np.testing.assert_allclose(image.numpy(), expected)
    assert label == 11
    texts = datasets.DatasetFolder(
        tmp_path, lambda path: Path(path).read_text(), (".txt",), allow_empty=True
    )
    assert texts[0] == ("no picture", 0)
    with pytest.raises(FileNotFoundError, match="classes b"):
        datasets.DatasetFolder(tmp_path, str, (".txt",))
    with pytest.raises(DatasetError, match="there is no folder"):
        datasets.ImageFolder(tmp_path / "nowhere")
    write_picture(tmp_path / "imagenet/val/n01/x.png", pixels(2, 2, 3))
    assert datasets.ImageNet(tmp_path / "imagenet", "val").wnids == ["n01"]


def test_random_images_do_not_change() -> None:
    data = datasets.FakeData(6, (3, 5, 4), 3, transform=transforms.ToTensor())
    first, again = data[4], data[4]
    assert first[0].shape == (3, 5, 4) and 0 <= first[1] < 3
    np.testing.assert_array_equal(first[0].numpy(), again[0].numpy())
    with pytest.raises(IndexError):
        data[6]
    images, labels = next(iter(DataLoader(data, batch_size=6, num_workers=2)))
    assert images.shape == (6, 3, 5, 4) and labels.shape == (6,)


def test_house_numbers(tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    images, labels = pixels(32, 32, 3, 4), np.array([[1], [10], [3], [9]], np.uint8)
    io.savemat(tmp_path / "train_32x32.mat", {"X": images, "y": labels})
    data = datasets.SVHN(tmp_path)
    assert data.labels.tolist() == [1, 0, 3, 9]
    np.testing.assert_array_equal(np.asarray(data[2][0]), images[..., 2])


def test_stl10(tmp_path: Path) -> None:
    folder, images = tmp_path / "stl10_binary", pixels(3, 3, 96, 96)
    write(folder / "train_X.bin", images.tobytes())
    write(folder / "unlabeled_X.bin", images[:1].tobytes())
    write(folder / "train_y.bin", bytes([1, 10, 4]))
    write(folder / "class_names.txt", "\n".join("abcdefghij"))
    write(folder / "fold_indices.txt", "0 2 \n1 2 \n")
    data = datasets.STL10(tmp_path, "train+unlabeled")
    assert data.labels.tolist() == [0, 9, 3, -1] and data.classes[9] == "j"
    np.testing.assert_array_equal(np.asarray(data[1][0]), images[1].transpose(2, 1, 0))
    assert datasets.STL10(tmp_path, "train", folds=1).labels.tolist() == [9, 3]


def test_usps(tmp_path: Path) -> None:
    values = random.integers(-2, 3, (2, 256)) / 2
    lines = [
        f"{number + 3} " + " ".join(f"{k + 1}:{value}" for k, value in enumerate(row))
        for number, row in enumerate(values)
    ]
    write(tmp_path / "usps.bz2", bz2.compress("\n".join(lines).encode()))
    data = datasets.USPS(tmp_path)
    assert data.targets == [2, 3]
    expected = ((values[1].reshape(16, 16) + 1) / 2 * 255).astype(np.uint8)
    np.testing.assert_array_equal(np.asarray(data[1][0]), expected)


ANNOTATION = """<annotation><filename>one.jpg</filename><size><width>8</width></size>
<object><name>cat</name><bndbox><xmin>1</xmin></bndbox></object></annotation>"""


def test_pascal(tmp_path: Path) -> None:
    base = tmp_path / "VOCdevkit/VOC2012"
    write_picture(base / "JPEGImages/one.jpg", pixels(6, 8, 3))
    classes = pixels(6, 8) % 21
    mask = Image.fromarray(classes)
    mask = mask.convert("P")
    mask.putdata(classes.reshape(-1).tolist())
    (base / "SegmentationClass").mkdir(parents=True)
    mask.save(base / "SegmentationClass/one.png")
    write(base / "ImageSets/Segmentation/train.txt", "one\n")
    write(base / "ImageSets/Main/train.txt", "one 1\n")
    write(base / "Annotations/one.xml", ANNOTATION)

    def both(image: Any, target: Any) -> Any:
        return np.asarray(image).shape, np.asarray(target)

    shape, target = datasets.VOCSegmentation(tmp_path, transforms=both)[0]
    assert shape == (6, 8, 3)
    np.testing.assert_array_equal(target, classes)
    _, found = datasets.VOCDetection(base)[0]
    assert found["annotation"]["object"] == [{"name": "cat", "bndbox": {"xmin": "1"}}]
    assert found["annotation"]["size"] == {"width": "8"}


def test_cityscapes(tmp_path: Path) -> None:
    ids = pixels(4, 6)
    write_picture(tmp_path / "leftImg8bit/val/ulm/ulm_1_leftImg8bit.png", pixels(4, 6, 3))
    write_picture(tmp_path / "gtFine/val/ulm/ulm_1_gtFine_labelIds.png", ids)
    write(tmp_path / "gtFine/val/ulm/ulm_1_gtFine_polygons.json", '{"imgHeight": 4}')
    data = datasets.Cityscapes(tmp_path, "val", target_type=["semantic", "polygon"])
    _, (labels, polygons) = data[0]
    np.testing.assert_array_equal(np.asarray(labels), ids)
    assert polygons == {"imgHeight": 4}
    with pytest.raises(ArgumentError, match="target_type"):
        datasets.Cityscapes(tmp_path, "val", target_type="depth")


def test_coco(tmp_path: Path) -> None:
    write_picture(tmp_path / "images/x.png", pixels(4, 4, 3))
    content = {
        "images": [{"id": 7, "file_name": "x.png"}],
        "annotations": [
            {"image_id": 7, "bbox": [1, 1, 2, 2], "category_id": 3, "caption": "a square"}
        ],
    }
    write(tmp_path / "instances.json", json.dumps(content))
    arguments = (tmp_path / "images", str(tmp_path / "instances.json"))
    assert datasets.CocoDetection(*arguments)[0][1][0]["bbox"] == [1, 1, 2, 2]
    assert datasets.CocoCaptions(*arguments)[0][1] == ["a square"]


def test_celeba(tmp_path: Path) -> None:
    base = tmp_path / "celeba"
    for number in range(3):
        write_picture(base / f"img_align_celeba/{number}.jpg", pixels(8, 6, 3))
    write(base / "list_eval_partition.txt", "0.jpg 0\n1.jpg 2\n2.jpg 0\n")
    write(base / "identity_CelebA.txt", "0.jpg 11\n1.jpg 12\n2.jpg 13\n")
    write(base / "list_attr_celeba.txt", "3\nBald Smiling\n0.jpg -1 1\n1.jpg 1 1\n2.jpg 1 -1\n")
    data = datasets.CelebA(tmp_path, "train", ["attr", "identity"])
    assert len(data) == 2 and data.attr_names == ["Bald", "Smiling"]
    attributes, identity = data[1][1]
    assert attributes.tolist() == [1, 0] and identity.item() == 13


@pytest.mark.parametrize("name", ["MNIST", "CIFAR10", "SVHN", "STL10", "USPS", "VOCSegmentation"])
def test_missing_files_are_named_with_their_source(tmp_path: Path, name: str) -> None:
    kind = getattr(datasets, name)
    with pytest.raises(DatasetError, match=f"{name} expects {tmp_path}") as caught:
        kind(tmp_path, download=True)
    assert kind.source in str(caught.value) and "never downloads" in str(caught.value)
