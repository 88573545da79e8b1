#!/usr/bin/env python3
"""Tests of check_layers.py on small trees made for them."""

import tempfile
import unittest
from pathlib import Path

import check_layers


class CheckLayersTest(unittest.TestCase):
    def problems(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            return check_layers.check_tree(root)

    def assert_one(self, files, *words):
        problems = self.problems(files)
        self.assertEqual(len(problems), 1, problems)
        for word in words:
            self.assertIn(word, problems[0])

    def test_downwards_and_own_folder_are_allowed(self):
        text = '#include "millrace/base/a.h"\n#include "millrace/ops/math/b.h"\n#include <mutex>\n'
        self.assertEqual(self.problems({"millrace/ops/math/x.cc": text}), [])

    def test_upwards_names_file_line_and_folders(self):
        files = {"millrace/graph/x.cc": '\n#include "millrace/kernel/kernel.h"\n'}
        self.assert_one(files, "millrace/graph/x.cc:2:", "graph may include base, tensor")

    def test_runtime_never_includes_ops(self):
        files = {"millrace/runtime/x.h": '#include "millrace/ops/register_ops.h"\n'}
        self.assert_one(files, "runtime may include", "not ops")

    def test_api_includes_through_several_folders(self):
        text = "".join(
            f'#include "millrace/{folder}/x.h"\n' for folder in ("session", "eager", "io", "base")
        )
        self.assertEqual(self.problems({"millrace/api/x.cc": text}), [])

    def test_tests_may_include_upwards(self):
        text = '#include "millrace/session/session.h"\n'
        self.assertEqual(self.problems({"millrace/runtime/x_test.cc": text}), [])

    def test_shipped_code_does_not_include_test_code(self):
        files = {"millrace/graph/x.cc": '#include "millrace/graph/graph_testing.h"\n'}
        self.assert_one(files, "serves tests")

    def test_protobuf_headers_only_in_sources(self):
        text = '#include "proto/graph.pb.h"\n'
        self.assertEqual(self.problems({"millrace/graph/x.cc": text}), [])
        self.assert_one({"millrace/graph/x.h": text}, "proto/graph.pb.h", ".cc files only")

    def test_includes_are_written_from_the_root(self):
        self.assert_one({"millrace/graph/x.cc": '#include "node.h"\n'}, "from the root")
        files = {"millrace/graph/x.cc": '#include "millrace/graph/../ops/x.h"\n'}
        self.assert_one(files, "from the root")

    def test_unknown_folder(self):
        self.assert_one({"millrace/util/x.h": ""}, "folder util is not in the ladder")

    def test_light_header_reaches_costly_one_through_another(self):
        files = {
            "millrace/tensor/tensor.h": '#include "millrace/base/a.h"\n',
            "millrace/base/a.h": "#include <memory>\n",
        }
        self.assert_one(files, "millrace/base/a.h:1:", "millrace/base/a.h -> <memory>")

    def test_modules_import_downwards(self):
        text = "from millrace import gen_ops\nfrom millrace.core import nest\nimport numpy\n"
        self.assertEqual(self.problems({"python/millrace/ops/nn/x.py": text}), [])
        files = {"python/millrace/core/x.py": "\nfrom millrace.graph.graph import Tensor\n"}
        self.assert_one(files, "python/millrace/core/x.py:2:", "core may import _core, _names, ")

    def test_late_imports_say_why(self):
        text = "def f():\n    import difflib{}\n    class A:\n        import json  # late: seldom\n"
        self.assertEqual(
            self.problems({"python/millrace/ops/x.py": text.format("  # late: only errors")}), []
        )
        self.assert_one({"python/millrace/ops/x.py": text.format("  # noqa")}, "x.py:2:", "late")
        self.assert_one({"python/millrace/v1.py": text.format("")}, "v1.py:2:", "late")

    def test_imports_of_several_modules_are_seen(self):
        files = {"python/millrace/ops/x.py": "from millrace import core, train\n"}
        self.assert_one(files, "x.py:1:", "millrace.train: ops may import")
        files = {"python/millrace/ops/x.py": "import millrace.compat.v1 as tf\n"}
        self.assert_one(files, "millrace.compat.v1: ops may import")
        self.assert_one({"python/millrace/ops/x.py": "from . import math\n"}, "from the root")

    def test_modules_import_no_circles(self):
        files = {
            "python/millrace/core/a.py": "from millrace.core import b\n",
            "python/millrace/core/b.py": "from millrace.core.c import name\n",
            "python/millrace/core/c.py": "import millrace.core.a\n",
        }
        self.assert_one(files, "circle", "core.a -> millrace.core.b -> millrace.core.c")
        files["python/millrace/core/c.py"] = "if TYPE_CHECKING:\n    import millrace.core.a\n"
        self.assertEqual(self.problems(files), [])

    def test_modules_at_the_top_are_entrances(self):
        text = "from millrace.compat.v1 import layers\n"
        self.assertEqual(self.problems({"python/millrace/__main__.py": text}), [])
        self.assert_one({"python/millrace/image.py": ""}, "not at the top")
        self.assert_one({"python/millrace/util/x.py": ""}, "folder util is not in the ladder")

    def test_ladders_are_ladders(self):
        for ladder in (check_layers.LADDER, check_layers.PYTHON_LADDER):
            for folder, below in ladder.items():
                for other in below:
                    self.assertIn(other, ladder)
                    self.assertNotIn(folder, check_layers.reachable(other, ladder))


if __name__ == "__main__":
    unittest.main()
