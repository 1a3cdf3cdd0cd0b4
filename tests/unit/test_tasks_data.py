"""Opening data: every local form, and one clear line for whatever is missing."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import datasets
import numpy as np
import pytest
from PIL import Image

from harness_heads.errors import HarnessHeadsError
from harness_heads.tasks import data as opening
from harness_heads.tasks import hub_data
from harness_heads.tasks.data import DATA_ROOT, DATA_VARIABLE, open_data
from harness_heads.tasks.recipes.classes import ClassPool
from harness_heads.tasks.sources import BadImage, RowsSource, Source
from harness_heads.tasks.spec import DataRef, TaskSpec

HUB = Path(__file__).resolve().parents[1] / "fixtures" / "hub"
IMAGENET = DataRef("ILSVRC/imagenet-1k", "validation", files=("data/validation-00000-of-00014.parquet",))


@pytest.fixture(autouse=True)
def no_data_of_the_user(monkeypatch):
    monkeypatch.delenv(DATA_ROOT, raising=False)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


@pytest.fixture
def folder(tmp_path):
    """An image folder of six classes."""
    for number, name in enumerate(("cat", "dog", "sea_horse", "tree", "car", "house")):
        for copy in range(3):
            target = tmp_path / "pets" / name / f"{copy}.png"
            target.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (40, 32), (40 * number, 80 * copy, 9)).save(target)
    return tmp_path / "pets"


def opened(path: Path, ref: DataRef, monkeypatch: pytest.MonkeyPatch, task: str = "t") -> Source:
    monkeypatch.setenv(DATA_VARIABLE, json.dumps({task: str(path)}))
    return open_data(ref, task)


def test_root_folder_holds_owner_and_name(monkeypatch):
    monkeypatch.setenv(DATA_ROOT, str(HUB))
    source = open_data(IMAGENET, "ncs_imagenet")
    assert len(source) == 56
    assert source.columns == ("image", "label")
    names = source.names("label")
    assert names is not None and names[0] == "tench, Tinca tinca"
    assert source.image(0, "image").mode == "RGB"
    assert source.sha(0, "image") != source.sha(1, "image")


def test_a_path_for_the_task_comes_before_the_root(monkeypatch, folder):
    monkeypatch.setenv(DATA_ROOT, str(HUB))
    source = opened(folder, IMAGENET, monkeypatch, "ncs_imagenet")
    assert len(source) == 18
    assert source.value(0, "label") == "car"
    assert sorted({source.value(i, "label") for i in range(18)})[-2:] == ["sea horse", "tree"]


def test_a_relative_image_folder_with_equal_names_in_its_classes(monkeypatch, folder):
    """cat/0.png and dog/0.png are two pictures, from wherever the folder is named."""
    monkeypatch.chdir(folder.parent)
    far, near = opened(folder, IMAGENET, monkeypatch), opened(Path("pets"), IMAGENET, monkeypatch)
    assert len(open_data(DataRef("pets"), "another")) == 18  # a folder here, named without ./
    assert len(near) == len(far) == 18
    for row in range(18):
        assert (
            near.cell(row, "label") == far.cell(row, "label") == far.cell(row, "image").split("/")[0].replace("_", " ")
        )
        assert near.image(row, "image").getpixel((0, 0)) == far.image(row, "image").getpixel((0, 0))
    assert len({near.sha(row, "image") for row in range(18)}) == 18


def test_an_image_is_found_by_as_much_of_its_path_as_it_takes(folder):
    """A URL's last parts tell equal names apart; where they do not, nothing is guessed."""
    rows = [{"image": f"https://host/{name}"} for name in ("a/dog/1.png", "1.png", "b/none/1.png", "tree/9.png")]
    source = RowsSource(rows, ("image",), {}, "some data", folder)
    assert source.image(0, "image").getpixel((0, 0)) == (40, 80, 9)
    for row in (1, 2):
        with pytest.raises(HarnessHeadsError, match=r"1\.png may be any of 6 files \(car/1\.png, .*name its folder"):
            source.image(row, "image")
    with pytest.raises(HarnessHeadsError, match=r"9\.png is not in the local copy"):
        source.image(3, "image")


def test_image_folder_with_split_folders(monkeypatch, folder, tmp_path):
    shutil.move(str(folder), str(tmp_path / "set" / "validation"))
    source = opened(tmp_path / "set", IMAGENET, monkeypatch)
    assert len(source) == 18


def test_saved_data_set(monkeypatch, tmp_path):
    table = datasets.load_dataset(
        "parquet", data_files=str(HUB / "ILSVRC/imagenet-1k/data/validation-00000-of-00014.parquet"), split="train"
    )
    datasets.DatasetDict({"validation": table}).save_to_disk(str(tmp_path / "saved"))
    source = opened(tmp_path / "saved", IMAGENET, monkeypatch)
    assert len(source) == 56
    with pytest.raises(HarnessHeadsError, match="no split 'validatio'; did you mean 'validation'"):
        opened(tmp_path / "saved", DataRef("a/b", "validatio"), monkeypatch)
    table.save_to_disk(str(tmp_path / "one"))
    assert len(opened(tmp_path / "one", DataRef("a/b", "anything"), monkeypatch)) == 56


def test_parquet_split_by_file_name(monkeypatch):
    source = opened(HUB / "AI4Math/MathVista", DataRef("x/y", "testmini"), monkeypatch)
    assert len(source) == 24
    with pytest.raises(HarnessHeadsError, match=r"no split 'train' \(splits: testmini\)"):
        opened(HUB / "AI4Math/MathVista", DataRef("x/y", "train"), monkeypatch)


def test_configuration_is_a_folder(monkeypatch):
    ref = DataRef("RyanWW/Spatial457-v2", "validation", name="L1_single", files=("L1_single/*.parquet",))
    assert len(opened(HUB / "RyanWW/Spatial457-v2", ref, monkeypatch)) == 24


def test_rows_cut_a_table_but_not_a_class_folder(monkeypatch, folder):
    ref = DataRef("ILSVRC/imagenet-1k", "validation", rows=10)
    assert len(opened(HUB / "ILSVRC/imagenet-1k", ref, monkeypatch)) == 10
    assert len(opened(folder, ref, monkeypatch)) == 18


def test_json_with_ragged_columns_and_templates(monkeypatch):
    ref = DataRef("adobe-research/vaw_dataset", "val", files=("data/val.json",))
    source = opened(HUB / "adobe-research/vaw_dataset", ref, monkeypatch)
    assert source.value(3, "{image_id}.jpg") == "2370003.jpg"
    assert source.image(3, "{image_id}.jpg").size == (64, 48)
    assert source.value(1, "instance_polygon") is None


def test_csv_of_urls_uses_local_images(monkeypatch):
    ref = DataRef("toloka/WSDMCup2023", "test_public", files=("test_public.csv",))
    source = opened(HUB / "toloka/WSDMCup2023", ref, monkeypatch)
    assert len(source) == 12
    assert str(source.value(2, "image")).startswith("https://")
    assert source.image(2, "image").size == (64, 48)


def test_metadata_beside_images(monkeypatch, tmp_path):
    Image.new("RGB", (40, 40), "red").save(tmp_path / "a.png")
    (tmp_path / "metadata.jsonl").write_text('{"file_name": "a.png", "question": "Which?"}\n', encoding="utf-8")
    source = opened(tmp_path, DataRef("x/y"), monkeypatch)
    assert source.value(0, "question") == "Which?"
    assert source.image(0, "image").size == (40, 40)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there is no image"),
        ({"bytes": None, "path": "nowhere.png"}, "not in the local copy"),
        ("/nowhere/at/all.png", "cannot be read"),
        (b"\x89PNG broken", "no readable image"),
        ("", "there is no image"),
    ],
)
def test_bad_rows_are_named(content, says, tmp_path):
    source = RowsSource([{"image": content}], ("image",), {}, "some data", tmp_path)
    with pytest.raises(BadImage, match=f"some data: row 0.*, column 'image'.*{says}"):
        source.picture(0, "image")


def test_truncated_pixels_are_found_when_decoding_first(tmp_path):
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 255, (120, 160, 3)).astype(np.uint8)
    Image.fromarray(noise).save(buffer, "JPEG")
    whole = buffer.getvalue()
    source = RowsSource([{"image": whole[: len(whole) * 2 // 3]}], ("image",), {}, "some data")
    source.picture(0, "image")
    with pytest.raises(BadImage, match="row 0"):
        source.image(0, "image")
    source.decode_first = True
    with pytest.raises(BadImage, match="row 0"):
        source.picture(0, "image")
    assert source.left_out == 1


def test_skip_leaves_bad_images_out_and_counts_them(monkeypatch, folder):
    (folder / "cat" / "0.png").write_bytes(b"no picture")
    spec = TaskSpec("t", "mcq_matched_mismatched", DataRef("a/b"), {"image": "image", "label": "label"}, 8, 1)
    source = opened(folder, spec.data, monkeypatch)
    pool = ClassPool(source, spec, np.random.default_rng(0))
    with pytest.raises(BadImage, match=r"row \d+ \(cat/0\.png\), column 'image'.*bad_images: skip"):
        for _ in range(3):
            pool.next_picture("cat")
    source.decode_first = True
    rows = {pool.next_picture("cat")["row"] for _ in range(6)}
    assert len(rows) == 2
    assert source.left_out == 2  # once refused, once skipped


def exif_rotated() -> tuple[bytes, tuple[int, int], tuple[int, int, int]]:
    image = Image.new("RGB", (60, 40), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 60, 20))
    exif = Image.Exif()
    exif[274] = 6  # shown turned a quarter to the right: what was on top is on the right
    buffer = io.BytesIO()
    image.save(buffer, "PNG", exif=exif)
    return buffer.getvalue(), (40, 60), (0, 0, 0)


def see_through() -> tuple[bytes, tuple[int, int], tuple[int, int, int]]:
    buffer = io.BytesIO()
    Image.new("RGBA", (40, 30), (200, 0, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue(), (40, 30), (255, 255, 255)


def sixteen_bits() -> tuple[bytes, tuple[int, int], tuple[int, int, int]]:
    buffer = io.BytesIO()
    Image.fromarray(np.full((30, 40), 32768, np.uint16)).save(buffer, "PNG")
    return buffer.getvalue(), (40, 30), (128, 128, 128)


@pytest.mark.parametrize("make", [exif_rotated, see_through, sixteen_bits])
def test_images_are_treated_once_for_every_task(make):
    """Whatever opens a data set, its images pass one treatment: pixels are checked in test_regions."""
    content, size, corner = make()
    for cell in (content, {"bytes": content, "path": None}):
        shown = RowsSource([{"image": cell}], ("image",), {}, "some data").image(0, "image")
        assert (shown.mode, shown.size, shown.getpixel((0, 0))) == ("RGB", size, corner)


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (width % 256, height % 256, 9)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (png(27, 100), "27"),
        (png(28 * 201, 28), "200"),
        (b"\xff\xd8 no picture", "no readable image"),
        (png(64, 64)[:60], "image"),
        (b"", "image"),
    ],
    ids=["thin", "elongated", "corrupt", "truncated", "empty"],
)
def test_a_bad_image_fails_the_task_by_name_or_is_skipped_and_counted(content, says, monkeypatch, folder):
    from harness_heads.tasks.task import HeadTask

    (folder / "cat" / "1.png").write_bytes(content)
    monkeypatch.setenv(DATA_VARIABLE, json.dumps({"pets": str(folder)}))
    config = {
        "task": "pets",
        "data": {"path": "a/b"},
        "recipe": "mcq_matched_mismatched",
        "columns": {"image": "image", "label": "label"},
        "question": "What is shown?",
        "n": 24,
        "seed": 1,
    }
    with pytest.raises(HarnessHeadsError, match=rf"row \d+ \(cat/1\.png\), column 'image'.*{says}.*bad_images: skip"):
        task = HeadTask(config=dict(config))
        for doc in task.dataset["all"]:  # pixels that end too soon show when they are read
            for arm in doc["arms"]:
                task.doc_to_visual(doc, arm)
    task = HeadTask(config={**config, "bad_images": "skip"})
    assert len(task.dataset["all"]) == 24
    assert task.source.left_out == 1
    assert task._summarise([]).endswith("; 1 bad images left out")


def test_unknown_column_is_named_with_the_nearest(monkeypatch):
    source = opened(HUB / "Lin-Chen/MMStar", DataRef("x/y", "val"), monkeypatch)
    with pytest.raises(HarnessHeadsError, match=r"no column 'imag'; did you mean 'image'.*columns: index"):
        source.need("imag")


def test_a_data_path_that_does_not_exist(monkeypatch, tmp_path):
    with pytest.raises(HarnessHeadsError, match=r"--data t=.*nothing does not exist"):
        opened(tmp_path / "nothing", DataRef("x/y"), monkeypatch)


def test_an_empty_folder_says_what_is_expected(monkeypatch, tmp_path):
    with pytest.raises(HarnessHeadsError, match=r"CLASS/picture\.jpg"):
        opened(tmp_path, DataRef("x/y"), monkeypatch)


def test_without_the_hub_one_line_says_what_is_missing_and_what_to_do(monkeypatch):
    def unreachable(*args, **kwargs):
        raise ConnectionError("Name or service not known\nlong traceback text")

    monkeypatch.setattr(hub_data, "_open", unreachable)
    ref = DataRef("ILSVRC/imagenet-1k", "validation", "49e2ee26", ("data/validation-*.parquet",))
    with pytest.raises(HarnessHeadsError) as caught:
        open_data(ref, "ncs_imagenet")
    said = str(caught.value)
    assert "\n" not in said
    for part in (
        "ncs_imagenet",
        "ILSVRC/imagenet-1k",
        "validation",
        "--data ncs_imagenet=PATH",
        "HARNESS_HEADS_DATA=DIR",
        "DIR/ILSVRC/imagenet-1k",
    ):
        assert part in said


def test_gated_data_say_that_terms_must_be_accepted(monkeypatch):
    def gated(*args, **kwargs):
        raise PermissionError("403 Client Error: access to dataset is restricted")

    monkeypatch.setattr(hub_data, "_open", gated)
    with pytest.raises(HarnessHeadsError, match="terms must be accepted on its page, and HF_TOKEN set"):
        open_data(IMAGENET, "ncs_imagenet")


def test_data_that_the_hub_does_not_hold_say_where_to_get_them():
    ref = DataRef("adobe-research/vaw_dataset", "val", files=("data/val.json",), get="val.json from its repository")
    with pytest.raises(HarnessHeadsError, match=r"get val\.json from its repository; then point at a local copy"):
        open_data(ref, "VAW_pointing")


def test_the_environment_variable_must_be_json(monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, "a=b")
    with pytest.raises(HarnessHeadsError, match="not a JSON object"):
        opening.local_copy(IMAGENET, "t")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("rows.json", "5", "is no JSON list of rows"),
        ("rows.json", '[{"a": 1}, 5]', "row 2 is 5; a row is an object of columns"),
        ("rows.jsonl", '{"a": 1}\n5\n', "row 2 is 5"),
        ("rows.json", "[" * 200_000, "cannot be read"),
        ("rows.csv", "a,b\n1,2,3\n", "row 1 has more cells than the header"),
        ("rows.csv", 'a,b\n1,"2\n', "cannot be read"),
        ("saved/state.json", "{", "cannot be read as a saved data set"),
    ],
)
def test_tables_that_are_none_are_named(name, content, says, tmp_path, monkeypatch):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(HarnessHeadsError, match=f"t: .*{says}"):
        opened(path if path.parent == tmp_path else path.parent, DataRef("x/y"), monkeypatch)


@pytest.mark.parametrize("value", ["[]", "5", '{"t": 5}', "{"])
def test_a_variable_that_names_no_paths_is_named(value, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, value)
    with pytest.raises(HarnessHeadsError, match=f"{DATA_VARIABLE} is not a JSON object of task names and paths"):
        open_data(DataRef("x/y"), "t")
