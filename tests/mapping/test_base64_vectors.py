"""`request.base64_vectors`: which clients of an embeddings format receive vectors as base64."""

import pytest

from tollgate.config.load import read_text
from tollgate.errors import ConfigErrors
from tollgate.mapping import CompiledMapping, Context, compile_mapping, run_examples

OLD = "$.encoding_format == 'base64' and $headers['user-agent'] == 'old'"


def compiled(condition: object, hub: str = "hub: embeddings\n", more: str = "") -> CompiledMapping:
    return compile_mapping(read_text(f"mapping: own\n{hub}request:\n  base64_vectors: {condition}\n{more}", "own.yaml"))


@pytest.mark.parametrize(
    ("encoding", "agent", "wanted"),
    [("base64", "old", True), ("base64", "new", False), ("float", "old", False), (None, None, False)],
)
def test_the_condition_reads_the_request_and_the_headers(encoding: str | None, agent: str | None, wanted: bool):
    context = Context()
    if agent:
        context.headers = {"user-agent": agent}
    assert compiled(OLD).sections["request.base64_vectors"]({"encoding_format": encoding}, context) is wanted


def test_the_condition_may_be_constant():
    assert compiled("true").sections["request.base64_vectors"]({}, Context()) is True


def test_a_format_without_the_condition_has_no_such_section():
    mapping = compile_mapping(read_text("mapping: own\nhub: embeddings\n", "own.yaml"))
    assert "request.base64_vectors" not in mapping.sections


def test_an_example_sets_the_headers_and_fails_if_the_result_differs():
    mapping = compiled(
        OLD,
        more="""examples:
  - {name: yes, of: request.base64_vectors, with: {headers: {user-agent: old}}, given: {encoding_format: base64}, expect: true}
  - {name: no, of: request.base64_vectors, given: {encoding_format: base64}, expect: true}
""",  # noqa: E501
    )
    assert [(problem.mark.line, problem.message) for problem in run_examples(mapping)] == [
        (7, "example `no` differs: found false, wanted true")
    ]


@pytest.mark.parametrize(
    ("condition", "hub", "message"),
    [
        ("[a]", "hub: embeddings\n", "own.yaml:4:19: a condition is an expression"),
        ("$header.x == 'a'", "hub: embeddings\n", "own.yaml:4:19: unknown name `$header` (did you mean `$headers`?)"),
        ("$model.id == 'a'", "hub: embeddings\n", "own.yaml:4:19: `$model` cannot be read here"),
        (
            "true",
            "",
            "own.yaml:3:3: `base64_vectors` is for files with `hub: embeddings`: conversations have no vectors",
        ),
    ],
)
def test_a_config_error_names_its_place(condition: str, hub: str, message: str):
    with pytest.raises(ConfigErrors) as caught:
        compiled(condition, hub)
    assert message in str(caught.value)


def test_a_misspelt_key_is_answered_with_the_nearest_one():
    with pytest.raises(ConfigErrors, match=r"unknown key `base64_vector` \(did you mean `base64_vectors`\?\)"):
        compile_mapping(read_text("mapping: own\nhub: embeddings\nrequest: {base64_vector: true}\n", "own.yaml"))
