"""Samples of perf, by the innermost function that is compiled or interpreted."""

from __future__ import annotations

from bench.stacks import OTHER, PLAIN, parsed, table

SAID = """
          4fee10 PyDict_GetItem
          7f0010 CPyDef_binary___pack
          7f0020 CPyDef_wire___scripts___Scripts____start.localalias (inlined)
          53ad86 _PyEval_EvalFrameDefault

          4fee10 PyObject_GetAttr
          53ad86 _PyEval_EvalFrameDefault
          7f0010 CPyDef_binary___pack

          7f0010 CPyDef_wire___scripts___Scripts____start

          4fee10
"""


def test_a_sample_counts_for_the_innermost_function_on_its_stack() -> None:
    found = list(parsed(SAID.splitlines(keepends=True)))
    assert found[0][2] == "CPyDef_wire___scripts___Scripts____start"
    lines = [line.split(" %  ") for line in table(found)[1:]]
    assert {line[1].split()[0]: float(line[0]) for line in lines} == {
        "binary.pack": 25.0, PLAIN: 25.0, "wire.scripts.Scripts._start": 25.0, OTHER: 25.0,
    }  # fmt: skip
    assert "PyDict_GetItem 25.0" in next(line[1] for line in lines if "binary.pack" in line[1])


def test_only_samples_within_a_function_count() -> None:
    first, *rest = table(parsed(SAID.splitlines()), within="binary")
    assert first == "2 samples"
    assert [line.split()[2] for line in rest] == ["binary.pack", PLAIN]
