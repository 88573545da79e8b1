"""Sources of ops that open files mark their ops, so that servers can refuse them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
# How a source comes to a file: through the device's FileAccess, or past it.
OPENS = re.compile(
    r"\bfiles\(\)|posix_file_system\(|\bfind_file\(|\bfopen\(|fstream\b|\bread_file\("
)
# Those that open files for ops of other sources, and what marks or guards these.
OF_OTHERS = {
    "millrace/data/file_cache.cc": "CacheDataset: in memory without a name, else FileAccess alone",
    "millrace/ops/io/checkpoint_inputs.cc": "ops of save.cc and restore.cc",
    "millrace/ops/io/reader_access.cc": "readers, which ops of readers.cc make",
}


def test_sources_that_open_files_mark_their_ops():
    seen = set()
    for folder in ("millrace/ops", "millrace/data", "python/src"):
        for path in sorted((ROOT / folder).rglob("*")):
            name = path.relative_to(ROOT).as_posix()
            if path.suffix != ".cc" or re.search(r"_(test|testing|bench|fuzz)\.", name):
                continue
            text = re.sub(r"//[^\n]*", "", path.read_text())
            registers = "registry.kernel" in text or folder != "python/src"
            if not registers or not OPENS.search(text):
                continue
            seen.add(name)
            assert name in OF_OTHERS or "mark_reach(" in text, f"{name} opens files: mark_reach()"
    assert set(OF_OTHERS) <= seen, set(OF_OTHERS) - seen
    assert "millrace/ops/io/files.cc" in seen and "millrace/ops/control/print.cc" in seen
