#!/usr/bin/env python3
"""Tests of check_docs.py on small trees made for them."""

import tempfile
import unittest
from pathlib import Path

import check_docs

CODE = "int main() {\n  return 0;\n}\n"


class CheckDocsTest(unittest.TestCase):
    def problems(self, text, files=()):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, content in {"README.md": text, **dict(files)}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content, encoding="utf-8")
            return check_docs.check_tree(root)

    def assert_one(self, text, files, *words):
        problems = self.problems(text, files)
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_whole_file(self):
        text = f"# T\n\n<!-- file: a.cc -->\n```cpp\n{CODE}```\n"
        self.assertEqual(self.problems(text, {"a.cc": CODE}), [])
        self.assert_one(text, {"a.cc": CODE + "\n"}, "README.md:4:", "is not a.cc")
        self.assert_one(text, {}, "a.cc does not exist")

    def test_part_of_a_file(self):
        text = "<!-- part of: a.cc -->\n```cpp\nreturn 0;\n```\n"
        self.assertEqual(self.problems(text, {"a.cc": CODE}), [])
        self.assert_one(text, {"a.cc": "return 1;\n"}, "does not stand in a.cc")

    def test_marker_without_a_block(self):
        self.assert_one("<!-- file: a.cc -->\nwords\n", {"a.cc": CODE}, "README.md:1:", "no code")

    def test_blocks_without_a_marker_are_free(self):
        self.assertEqual(self.problems("```sh\n[x](gone.md) `docs/gone.md`\n```\n"), [])

    def test_links(self):
        files = {"docs/a.md": "# One, two!\n"}
        text = "[a](docs/a.md#one-two) [b](https://example.org/x) [c](#top)\n\n# Top\n"
        self.assertEqual(self.problems(text, files), [])
        self.assert_one("[a](docs/b.md)\n", files, "README.md:1:", "docs/b.md", "no such file")
        self.assert_one("[a](docs/a.md#three)\n", files, "no such heading")
        self.assert_one("![a](x.svg)\n", files, "x.svg")

    def test_paths_in_backticks(self):
        self.assertEqual(self.problems("`docs/a.md` `build/x`\n", {"docs/a.md": ""}), [])
        self.assert_one("see `docs/b.md`\n", {}, "docs/b.md does not exist")


if __name__ == "__main__":
    unittest.main()
