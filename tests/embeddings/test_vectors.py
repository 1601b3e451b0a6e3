"""tollgate.embeddings.vectors: answers read without parsing their numbers, base64 decoded, answers written."""

import array
import base64
import json

import pytest

from tollgate.embeddings.vectors import as_native, packed_vector, split_vectors, vector_text, write_answer

FLOATS = b'{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-1e-05]}],"model":"m","usage":{"prompt_tokens":3,"total_tokens":3}}'  # noqa: E501


def packed(*values):
    return base64.b64encode(array.array("f", values).tobytes()).decode()


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        pytest.param(FLOATS, {"prompt_tokens": 3, "total_tokens": 3}, id="usage last"),
        pytest.param(
            b'{"usage":{"prompt_tokens":3,"d":{"x":"}"}},"data":[{"embedding":[1.0]}]}',
            {"prompt_tokens": 3, "d": {"x": "}"}},
            id="usage first",
        ),
        pytest.param(
            b'{ "data" : [ { "embedding" : [ 1.0 ] } ] , "usage" : { "total_tokens" : 4 } }',
            {"total_tokens": 4},
            id="with whitespace",
        ),
        pytest.param(b'{"data":[{"embedding":[1.0]}],"usage":null}', None, id="null"),
        pytest.param(b'{"data":[{"embedding":[1.0]}]}', None, id="none"),
        pytest.param(
            b'{"data":[{"embedding":[1.0]}],"usage":{"prompt_tokens":3}, "meta":{"warnings":["\\"usage\\":{}"]}}',
            {"prompt_tokens": 3},
            id="a list after it",
        ),
        pytest.param(
            b'{"data":[{"embedding":[1.0],"usage":{"prompt_tokens":3}},{"embedding":[2.0],"usage":{"prompt_tokens":4}}]}',
            None,
            id="of each vector, after it",
        ),
        pytest.param(
            b'{"data":[{"usage":{"prompt_tokens":3},"embedding":[1.0]}],"model":"m"}',
            None,
            id="of each vector, before it",
        ),
        pytest.param(
            b'{"data":[{"embedding":[1.0],"usage":{"prompt_tokens":3}}],"usage":{"prompt_tokens":7},"warnings":[]}',
            {"prompt_tokens": 7},
            id="of a vector and of the answer",
        ),
    ],
)
def test_usage_is_read_from_float_answers(answer, usage):
    for blocks in ([answer], [answer[:9], answer[9:]]):
        found = as_native(blocks)
        assert found is not None
        assert found.usage == usage
        assert b"".join(found.blocks()) == answer


def test_base64_answers_must_be_parsed():
    assert as_native([b'{"data":[{"object":"embedding","embedding":"AAAA"}]}']) is None
    assert as_native([b'{"error":{"message":"no"}}']) is None


def test_a_truncated_answer_must_be_parsed():
    assert [as_native([FLOATS[:cut]]) for cut in range(len(FLOATS)) if FLOATS[cut - 1 : cut] != b"}"] == [None] * (
        len(FLOATS) - 2
    )
    assert as_native([FLOATS + b"\r\n"]) is not None


def test_usage_is_inserted_without_changing_the_rest():
    wanted = {"prompt_tokens": 9, "total_tokens": 9}
    replaced = as_native([FLOATS])
    replaced.with_usage(wanted)
    written = b"".join(replaced.blocks())
    assert written.startswith(FLOATS[:100]) and json.loads(written)["usage"] == wanted
    bare = as_native([b'{"data":[{"embedding":[1.0]}]}'])
    bare.with_usage(wanted)
    assert json.loads(b"".join(bare.blocks())) == {"data": [{"embedding": [1.0]}], "usage": wanted}
    empty = as_native([b'{"data":[{"embedding":[1.0],"usage":null}],"usage": null,"model":"m"}'])
    empty.with_usage(wanted)
    inserted = b'{"prompt_tokens":9,"total_tokens":9}'
    assert b"".join(empty.blocks()) == b'{"data":[{"embedding":[1.0],"usage":null}],"usage": %b,"model":"m"}' % inserted
    within = b'{"data":[{"embedding":[1.0]}],"meta":{"usage":null},"usage":{"prompt_tokens":3}}'
    assert as_native([within]).usage == {"prompt_tokens": 3}
    apart = {"data": [{"embedding": [1.0], "usage": {"prompt_tokens": 3}}], "model": "m"}
    own = as_native([json.dumps(apart).encode()])
    own.with_usage(wanted)
    assert json.loads(b"".join(own.blocks())) == {**apart, "usage": wanted}


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (b'{"data":[{"index":0,"embedding":[1.50]},{"index":1,"embedding":[ 2 ]}]}', [b"[1.50]", b"[ 2 ]"]),
        (b'{"data":[{"embedding":[1.50],"index":1},{"embedding":[2],"index":0}]}', [b"[2]", b"[1.50]"]),
        (b'{"data":[{"embedding":[1]},{"embedding":[2]}]}', [b"[1]", b"[2]"]),
        (b'{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[2]}]}', None),
        (b'{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":"AAAA"}]}', None),
    ],
    ids=["in order", "shuffled", "no index", "a duplicate index", "mixed"],
)
def test_vectors_are_extracted_without_parsing(answer, wanted):
    assert split_vectors(as_native([answer])) == wanted


@pytest.mark.parametrize("size", [1, 1000, 65_536, 200_000])
@pytest.mark.parametrize("first", [True, False], ids=["usage first", "usage last"])
def test_the_blocks_of_a_large_answer_are_not_joined(size, first):
    data = (
        b'"data":['
        + b",".join(
            b'{"object":"embedding","index":%d,"embedding":[%s]}' % (n, b",".join([b"0.12345"] * 500))
            for n in range(60)
        )
        + b"]"
    )
    usage = b'"usage":{"total_tokens":60}'
    answer = b"{" + (usage + b"," + data if first else data + b"," + usage) + b"}"
    blocks = [answer[at : at + size] for at in range(0, len(answer), size)]
    found = as_native(blocks)
    assert found.usage == {"total_tokens": 60}
    assert b"".join(found.blocks()) == answer
    if size == 1000:
        assert len(found.middle) > 150
    found.with_usage({"total_tokens": 61})
    assert json.loads(b"".join(found.blocks())) == {**json.loads(answer), "usage": {"total_tokens": 61}}


@pytest.mark.parametrize(
    ("vector", "wanted"),
    [
        pytest.param([0.5, 1], [0.5, 1], id="numbers"),
        pytest.param(packed(0.5, -2.0), [0.5, -2.0], id="base64 floats"),
        pytest.param({"base64": base64.b64encode(b"\xff\x01").decode(), "type": "int8"}, [-1, 1], id="int8"),
        pytest.param({"base64": base64.b64encode(b"\xff\x01").decode(), "type": "uint8"}, [255, 1], id="uint8"),
        pytest.param({"base64": "ADgAwA==", "type": "float16"}, [0.5, -2.0], id="float16"),
        pytest.param({"base64": "AAAAAAAA4D8=", "type": "float64"}, [0.5], id="float64"),
    ],
)
def test_a_vector_is_read_in_any_encoding(vector, wanted):
    assert json.loads(vector_text(vector)) == wanted


def test_base64_floats_keep_their_exact_float32_values():
    value = array.array("f", [0.1])[0]
    assert json.loads(vector_text(packed(0.1))) == [value]


@pytest.mark.parametrize(
    "vector",
    [
        None,
        5,
        "AAA",
        "****",
        "AA!AAAA==",
        "",
        "AAAA",
        {"base64": "AAAAAA==", "type": "float64"},
        {"base64": "AAAAAA==", "type": "bfloat16"},
        {"base64": "", "type": "int8"},
        "AADAfw==",
        {"base64": "AHw=", "type": "float16"},
        {},
        [],
        [1.0, None],
        ["1"],
        [True],
        [[1.0]],
        [{"index": 7, "value": 0.5}],
    ],
)
def test_an_invalid_vector_is_rejected(vector):
    """Token-level vectors and the pairs of sparse vectors are not accepted as numbers: SPEC requires an array of
    float."""
    with pytest.raises(ValueError):
        vector_text(vector)
    with pytest.raises(ValueError):
        packed_vector(vector)


@pytest.mark.parametrize(
    "vector",
    [[0.5, -2, 1e-3], packed(0.5, -2, 1e-3), {"base64": packed(0.5, -2, 1e-3)}],
    ids=["numbers", "base64", "typed"],
)
def test_vectors_are_encoded_as_base64(vector):
    assert json.loads(packed_vector(vector)) == packed(0.5, -2, 1e-3)


@pytest.mark.parametrize("vector", [["a"], [None], [[1.0]]])
def test_a_vector_that_cannot_be_encoded_is_rejected(vector):
    with pytest.raises(ValueError):
        packed_vector(vector)


def test_an_answer_is_written_in_pieces():
    pieces = list(write_answer([b"[1.0]", b"[2.0]"], {"model": "m", "usage": {"prompt_tokens": 1}}))
    assert json.loads(b"".join(pieces)) == {
        "object": "list",
        "model": "m",
        "usage": {"prompt_tokens": 1},
        "data": [
            {"object": "embedding", "index": 0, "embedding": [1.0]},
            {"object": "embedding", "index": 1, "embedding": [2.0]},
        ],
    }
