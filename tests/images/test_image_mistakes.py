"""Mistakes in the image part of a provider file: each is found at startup, with its place and a remedy."""

import pytest

from tollgate.config.load import read_text
from tollgate.config.provider import read_provider
from tollgate.config.secrets import Secrets
from tollgate.config.shape import check_shape
from tollgate.errors import ConfigErrors
from tollgate.mapping.provider import compile_provider, run_provider_examples

FILE = """provider: acme
images:
  submit:
    call: POST https://api.acme.example/jobs
    body: $.input
    result: {id: $.id, status: $.status}
  poll:
    call: GET https://api.acme.example/jobs/{{ $job.id }}
    result: {status: $.status}
models:
  acme/draw:
    price: {price: "0.04"}
    input_schema: {type: object}
"""


def mistakes(text):
    document = read_text(text, "acme.yaml")
    problems, tree = check_shape(document, "provider")
    if tree is None or problems:
        return [problem.render(source=False) for problem in problems]
    provider, problems = read_provider(document, tree)
    if problems:
        return [problem.render(source=False) for problem in problems]
    try:
        compiled = compile_provider(provider, {}, Secrets())
    except ConfigErrors as errors:
        return [problem.render(source=False) for problem in errors.problems]
    return [problem.render(source=False) for problem in run_provider_examples(compiled)]


def test_the_example_file_has_no_mistakes():
    assert mistakes(FILE) == []


@pytest.mark.parametrize(
    "address",
    [
        "{{ $vars.base | raw }}/jobs/{{ $job.id }}",
        "http://{{ $vars.host | raw }}/jobs?id={{ $job.id }}",
        "https://{{ $vars.a ~ '.example' }}",
    ],
)
def test_a_url_from_vars_needs_no_hosts(address):
    text = FILE.replace("GET https://api.acme.example/jobs/{{ $job.id }}", f'"GET {address}"')
    assert mistakes(text + "vars: {base: http://acme.example, host: acme.example, a: acme}\n") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{ $job.id }}", "{{ $job.idd }}", "acme.yaml:8:48: `$job` has no field `idd` (did you mean `id`?)"),
        ("{{ $job.id }}", "{{ $vars.bse }}", "acme.yaml:8:48: `$vars` has no field `bse` (did you mean `base`?)"),
        (
            "{status: $.status}",
            "{status: $http.code}",
            "acme.yaml:9:22: `$http` has no field `code` (one of headers, status)",
        ),
        (
            '{price: "0.04"}',
            '{price: "0.04", lines: [{count: seconds, price: "1"}]}',
            'acme.yaml:12:44: models.acme/draw.price.lines.count: found the text "seconds", wanted a number '
            + "(write $.seconds)",
        ),
        (
            '{price: "0.04"}',
            '{price: "0.04", asked: input.n}',
            'acme.yaml:12:35: models.acme/draw.price.asked: found the text "input.n", wanted a number (write $input.n)',
        ),
    ],
)
def test_unknown_names_and_missing_dollar_signs_are_reported(old, new, message):
    assert mistakes(FILE.replace(old, new) + "vars: {base: x}\n") == [message]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("body: $.input", "body: {prompt: $.prompt}", "5:20: `$` has no field `prompt` (its fields are input, model)"),
        ("body: $.input", "body: {x: $http.status}", "5:15: unknown name `$http` (it describes an answer: "),
        ("body: $.input", "body: {x: $model.size}", "5:15: `$model` has no field `size`"),
        ("body: $.input", "body: {x: $job.id}", "5:15: `$job` has no field `id` (did you mean `uuid`?)"),
        ("/jobs\n", "/jobs/{{ $job.status }}\n", "4:49: `$job` has no field `status` (one of images, uuid)"),
        ("{id: $.id, ", "{", "8:48: `$job` has no field `id`"),
    ],
)
def test_a_call_reads_only_what_is_there_before_it(old, new, message):
    (found,) = mistakes(FILE.replace(old, new))
    assert found.startswith(f"acme.yaml:{message}")


def test_a_poll_reads_what_earlier_polls_returned():
    text = FILE.replace("{status: $.status}\nmodels", "{status: $.status, page: $.page}\nmodels")
    assert mistakes(text.replace("{{ $job.id }}", "{{ $job.id }}/{{ $job.page }}")) == []


def test_results_that_are_copied_or_of_one_model_may_have_any_fields():
    """A result copied as a whole, or a model's own result."""
    copied = FILE.replace("{id: $.id, status: $.status}", "{$copy: [id, status, token]}")
    assert mistakes(copied.replace("{{ $job.id }}", "{{ $job.token }}")) == []
    own = FILE.replace("{{ $job.id }}", "{{ $job.token }}")
    assert mistakes(own + "    submit: {result: {id: $.id, status: $.status, token: $.token}}\n") == []


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "POST https",
            "FETCH https",
            'acme.yaml:4:11: images.submit.call: found "FETCH https://api.acme.example/jobs", '
            + "wanted a method and an address (POST https://api.example/v1/jobs)",
        ),
        (
            "    call: POST https://api.acme.example/jobs\n",
            "",
            "acme.yaml:4:5: images.submit: found no `call`, wanted method and address",
        ),
        (
            "https://api.acme.example/jobs/{{ $job.id }}",
            "$job.url",
            (
                "acme.yaml:8:15: images.poll.call: this address comes out of an answer, so it may lead anywhere with "
                "our key (add `hosts: [example.com]`)"
            ),
        ),
        (
            "GET https://api.acme.example/jobs/{{ $job.id }}",
            '"GET https://{{ $job.host }}/x"',
            (
                "acme.yaml:8:16: images.poll.call: this address comes out of an answer, so it may lead anywhere with "
                "our key (add `hosts: [example.com]`)"
            ),
        ),
        (
            "GET https://api.acme.example/jobs/{{ $job.id }}",
            '"GET https://{{ $vars.a ~ $job.host }}/x"',
            (
                "acme.yaml:8:16: images.poll.call: this address comes out of an answer, so it may lead anywhere with "
                "our key (add `hosts: [example.com]`)"
            ),
        ),
        (
            "GET https://api.acme.example/jobs/{{ $job.id }}",
            "\"GET https://{{ $job.host ~ '/' }}x\"",
            (
                "acme.yaml:8:16: images.poll.call: this address comes out of an answer, so it may lead anywhere with "
                "our key (add `hosts: [example.com]`)"
            ),
        ),
        (
            "GET https://api.acme.example/jobs/{{ $job.id }}",
            '"GET {{ $vars.base | raw }}{{ $job.host | raw }}"',
            (
                "acme.yaml:8:16: images.poll.call: this address comes out of an answer, so it may lead anywhere with "
                "our key (add `hosts: [example.com]`)"
            ),
        ),
        (
            "    result: {status: $.status}\n",
            '    hosts: ["acme.example/x"]\n    result: {status: $.status}\n',
            "acme.yaml:9:13: images.poll.hosts[0]: acme.example/x says more than a host",
        ),
        (
            "images:\n",
            "images:\n  upload: {call: POST https://a.example/f, result: {id: $.id}}\n",
            (
                "acme.yaml:3:53: images.upload.result: `id` is set by `submit` and later steps: there is no job yet "
                "(another name, such as `picture`, read as $job.picture)"
            ),
        ),
        (
            "    result: {status: $.status}\nmodels",
            "    body: {id: $job.id}\n    result: {status: $.status}\nmodels",
            "acme.yaml:9:11: images.poll.body: a GET has no body (write POST)",
        ),
        ("images:\n", "images:\n  prepare: {when: $input.image}\n", "acme.yaml:3:12: images.prepare: found no `call`"),
        (
            "models:\n",
            "examples: [{of: images.poll.call, with: {jbo: {id: 1}}, expect: GET x}]\nmodels:\n",
            "acme.yaml:10:42: unknown key `jbo` (did you mean `job`?)",
        ),
        ("$job.id", "$jb.id", "acme.yaml:8:48: unknown name `$jb` (did you mean `$job`?)"),
        ("result: {status: $.status}", "result: {$match: x}", "acme.yaml:9:"),
        (
            "result: {status: $.status}",
            "reslt: {status: $.status}",
            "acme.yaml:9:5: images.poll: found unknown key `reslt`, wanted",
        ),
        (
            'price: {price: "0.04"}',
            "price: {price: cheap}",
            'acme.yaml:12:20: models.acme/draw.price.price: found cheap, wanted an exact decimal such as "0.30"',
        ),
        (
            'price: {price: "0.04"}',
            "price: {currency: USD}",
            "acme.yaml:12:12: models.acme/draw.price: found no `price`, wanted what is shown and what a miss costs",
        ),
        (
            '    price: {price: "0.04"}\n',
            "",
            'acme.yaml:11:3: models.acme/draw.price: found no price, wanted one (price: {price: "0.03"}; "0" is free)',
        ),
        (
            'price: {price: "0.04"}',
            'price: {price: "0.04", table: {a: "1"}}',
            "acme.yaml:12:12: models.acme/draw.price: `by` and `table` need each other",
        ),
        (
            'price: {price: "0.04"}',
            'price: {price: "0.04", by: [$input.a], table: {a: {b: "1"}}}',
            "acme.yaml:12:55: models.acme/draw.price.table.a: wanted a price: the table is nested as `by` says",
        ),
        (
            'price: {price: "0.04"}',
            'price: {price: "0.04", by: [$input.a], table: {a: "-1"}}',
            'acme.yaml:12:55: models.acme/draw.price.table.a: found "-1", wanted zero or more',
        ),
        (
            'price: {price: "0.04"}',
            'price: {price: "0.04", further: 3e-2}',
            'acme.yaml:12:37: models.acme/draw.price.further: found 3e-2, wanted an exact decimal such as "0.30" '
            + '(write "0.03")',
        ),
        (
            'price: {price: "0.04"}',
            'price: {price: "0.04", asked: $inpt.n}',
            "unknown name `$inpt` (did you mean `$input`?)",
        ),
        (
            "input_schema: {type: object}",
            "input_schema: {type: objct}",
            'acme.yaml:13:26: models.acme/draw.input_schema.type: found "objct", wanted JSON Schema',
        ),
        (
            "models:",
            "examples: [{name: e, of: images.submit.body, given: {input: {a: 1}}, expect: {a: 2}}]\nmodels:",
            "example `e` differs at a: found 1, wanted 2",
        ),
        (
            "models:",
            "examples: [{name: e, of: images.fetch.result, given: {}, expect: {}}]\nmodels:",
            "example `e`: `fetch` is no step of this file",
        ),
        (
            "models:",
            "examples: [{name: e, of: images.submit.text, given: {}, expect: {}}]\nmodels:",
            "an example cannot be of `images.submit.text` (did you mean `images.submit.result`?)",
        ),
    ],
    ids=[
        "method",
        "no call",
        "address from an answer",
        "host from an answer",
        "host of vars and an answer",
        "host with a slash in its expression",
        "base followed by a host",
        "host with a path",
        "an id before the job",
        "a body of a GET",
        "a step without its call",
        "an unknown name in an example",
        "unknown name",
        "half a choice",
        "unknown key",
        "price",
        "no price",
        "no price block",
        "table without by",
        "table too deep",
        "price below zero",
        "price with an exponent",
        "unknown name in a price",
        "schema",
        "example",
        "example of an unknown step",
        "example of an unknown part",
    ],
)
def test_a_mistake_is_reported_with_its_place(old, new, message):
    assert old in FILE
    found = mistakes(FILE.replace(old, new))
    assert any(message in each for each in found), found


def test_all_mistakes_are_reported_together():
    broken = FILE.replace("$job.id", "$jb.id").replace("POST https", "FETCH https").replace("$.input", "$inpt")
    assert len(mistakes(broken)) == 3
