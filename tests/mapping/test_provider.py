"""Compiled provider files: URLs, headers, layers of edits and abilities, the offers they make, and their errors."""

import re
from dataclasses import replace
from uuid import UUID

import pytest

from mapping.provider_files import SMALL, compiled, config, offer
from mapping.support import document
from support.inprocess import unspoken
from tollgate.config.secrets import Secrets
from tollgate.config.settings import Timeouts
from tollgate.errors import ConfigErrors
from tollgate.mapping import Context, compile_mapping
from tollgate.mapping.failures import UnfitRequest
from tollgate.mapping.provider import compile_provider, run_provider_examples

RICH = """
provider: acme
vars: {region: eu-1, project: $secret.ACME_PROJECT, port: 443}
url: "https://{{ $vars.region }}.acme.example/v1"
speaks:
  chat: /chat/completions
  messages:
    url: "https://{{ $vars.region }}.acme.example:{{ $vars.port }}/p/{{ $vars.project }}/models/{{ $model.upstream }}:call"
    stream_url: "https://{{ $vars.region }}.acme.example/models/{{ $model.upstream }}:stream?alt=sse"
    headers: {x-version: "2026", Authorization: "Key {{ $secret.ACME_KEY }}", x-beta: "$headers['client-beta']",
      x-low: "{{ $can.low if not $native }}"}
    query: {api-version: "1 a"}
    count_tokens: /messages/count_tokens
    can: {cache: true, low: endpoint}
    usage: {excludes: [cache_read]}
    request: [{set: {trace: "{{ $.trace }}e"}}]
    framing: ndjson
  embeddings: {path: /embeddings, batch: 96}
headers: {Authorization: "Bearer {{ $secret.ACME_KEY }}", x-model: $model.id, x-count: 3, x-none: $secret.UNSET?}
query: {tenant: $vars.project, none: $secret.UNSET?}
can: {low: provider, other: 1}
usage: {excludes: [reasoning]}
timeouts: {first_byte: 60}
request: [{set: {trace: "p"}}]
policies:
  - match: ["acme/l*"]
    request: [{set: {trace: "{{ $.trace }}1"}}]
    can: {low: policy}
  - match: ["large-*"]
    protocols: [chat]
    request: [{set: {trace: "{{ $.trace }}2"}}]
  - match: ["acme/other"]
    request: [{set: {trace: "never"}}]
models:
  acme/large:
    upstream: large/2026:1
    context: 1000
    max_output: 100
    timeouts: {total: 5}
    can: {low: model}
    priority: 2
    weight: 3
    price: {prompt: "1.50", completion: "2", unit: 1000000}
    request: [{set: {trace: "{{ $.trace }}m"}}]
  acme/large-2: {upstream: large-2026, protocols: [chat], price: {prompt: "1"}}
  acme/embed: {type: embedding, price: {prompt: "1"}}
"""  # noqa: E501
SECRETS = {"ACME_KEY": "sk-canary", "ACME_PROJECT": "p 1/x"}


def rich(model="acme/large", endpoint="chat"):
    return offer(RICH, model, endpoint, secrets=SECRETS)


def test_urls_are_complete_at_start_and_their_values_are_escaped():
    messages = rich(endpoint="messages")
    assert (
        messages.url(False)
        == "https://eu-1.acme.example:443/p/p%201%2Fx/models/large%2F2026%3A1:call?tenant=p%201%2Fx&api-version=1%20a"
    )
    assert (
        messages.url(True)
        == "https://eu-1.acme.example/models/large%2F2026%3A1:stream?alt=sse&tenant=p%201%2Fx&api-version=1%20a"
    )
    assert (
        messages.address.count_tokens
        == "https://eu-1.acme.example/v1/messages/count_tokens?tenant=p%201%2Fx&api-version=1%20a"
    )
    chat = rich()
    assert chat.url(True) == chat.url(False) == "https://eu-1.acme.example/v1/chat/completions?tenant=p%201%2Fx"
    assert chat.address.count_tokens is None


def test_the_query_of_the_client_is_appended():
    assert rich().url(False, "beta=true").endswith("?tenant=p%201%2Fx&beta=true")
    assert offer(SMALL).url(False, "beta=true") == "https://api.acme.example/v1/chat/completions?beta=true"
    assert offer(SMALL).url(False) == "https://api.acme.example/v1/chat/completions"


def test_headers_are_built_once_without_absent_ones():
    chat = rich()
    assert chat.headers() == {
        "content-type": "application/json",
        "authorization": "Bearer sk-canary",
        "x-model": "acme/large",
        "x-count": "3",
    }
    assert chat.headers() is chat.headers()
    with pytest.raises(TypeError):
        chat.headers()["authorization"] = "Bearer another"


def test_values_in_headers_and_query_are_texts_as_everywhere_in_the_language():
    of_calls = "{x-fixed: $vars.on, x-made: $stream, x-list: \"{{ ['a', 1] }}\", "
    text = SMALL.replace("headers: {", "vars: {on: true}\nquery: {on: $vars.on, low: 0.5}\nheaders: " + of_calls)
    chat = offer(text)
    headers = chat.headers(stream=True)
    assert (headers["x-fixed"], headers["x-made"], headers["x-list"]) == ("true", "true", '["a",1]')
    assert chat.url(stream=True).endswith("?on=true&low=0.5")


def test_values_with_a_nonce_are_new_for_every_call():
    listed = "discover: {url: https://x.example/, list: $.data, model: {id: $.id}, headers: {x-list: $nonce}}\n"
    named = 'request: [{set: {request_id: "{{ $nonce | uuid }}"}}]\n'
    made = compiled(SMALL.replace("headers: {", "headers: {x-once: $nonce, x-at: $now, ") + listed + named)
    chat, discovery = made.offers["acme/large"][0], made.discovery
    first, second = chat.headers(), chat.headers()
    assert len(first["x-once"]) == 32 and first["x-once"] != second["x-once"]
    assert first["x-at"].isdecimal() and first["authorization"] == "Bearer sk-canary"
    listing = [discovery.headers() for _ in range(2)]
    assert {"x-list", "x-once"} <= listing[0].keys() and listing[0]["x-list"] != listing[1]["x-list"]
    contexts = Context(), Context()
    ids = [chat.request_edits({}, context)["request_id"] for context in (*contexts, *contexts)]
    assert UUID(ids[0]).version == 4 and ids[:2] == ids[2:] and ids[0] != ids[1]


def test_a_function_in_a_url_can_read_the_model():
    text = SMALL.replace("/chat/completions", '"/{{ place() }}/chat"')
    chat = compiled(text + "define: {place(): $model.upstream}\n").offers["acme/large"][0]
    assert chat.url(stream=False).endswith(f"/{chat.model.upstream}/chat")


def test_all_headers_of_one_call_use_the_same_nonce_and_time():
    functions = "define: {proof($key): \"{{ $key ~ '/' ~ $nonce ~ '/' ~ of_whom() }}\", of_whom(): $model.upstream}\n"
    headers = 'headers: {x-proof: "{{ proof(\'k\') }}", x-whom: "{{ of_whom() }}", x-once: $nonce, '
    chat = compiled(SMALL.replace("headers: {", headers) + functions).offers["acme/large"][0]
    first, second = chat.headers(), chat.headers()
    assert first["x-proof"] == f"k/{first['x-once']}/{chat.model.upstream}" != second["x-proof"]
    assert first["x-whom"] == chat.model.upstream


def test_an_endpoints_header_wins_and_may_read_client_headers():
    messages = rich(endpoint="messages")
    assert messages.headers({"client-beta": "b1"})["x-beta"] == "b1"
    assert "x-beta" not in messages.headers({})
    assert messages.headers({})["authorization"] == "Key sk-canary"
    assert messages.headers({})["x-version"] == "2026"


def test_a_header_may_depend_on_conversion_and_on_abilities():
    messages = rich(endpoint="messages")
    assert messages.headers({})["x-low"] == "model"
    assert "x-low" not in messages.headers({}, native=True)


def test_edits_run_in_scope_order():
    assert rich(endpoint="messages").request_edits({}, Context())["trace"] == "pe1m"
    assert rich("acme/large-2").request_edits({}, Context())["trace"] == "p12"
    assert rich("acme/embed", "embeddings").request_edits({}, Context())["trace"] == "p"


def test_without_edits_nothing_is_compiled():
    plain = offer(SMALL)
    assert (plain.request_edits, plain.response_edits, plain.stream_edits) == (None, None, None)


def test_models_with_the_same_edits_share_them():
    text = SMALL + "  acme/small: {}\nrequest: [{drop: [user]}]\n"
    made = compiled(text).offers
    assert made["acme/large"][0].request_edits is made["acme/small"][0].request_edits


def test_abilities_and_timeouts_are_layered():
    messages = rich(endpoint="messages")
    assert messages.can == {"low": "model", "other": 1, "cache": True}
    assert rich("acme/large-2").can == {"low": "policy", "other": 1}
    assert (messages.timeouts.total, messages.timeouts.first_byte) == (5, 60)
    assert compiled(SMALL, timeouts=Timeouts(idle=7)).offers["acme/large"][0].timeouts.idle == 7


def test_the_usage_rules_of_an_endpoint_win():
    assert rich(endpoint="messages").usage.excludes == {"cache_read"}
    assert rich().usage.excludes == {"reasoning"}


def test_a_policy_makes_cache_writes_count_beside_the_prompt():
    text = SMALL + 'policies: [{match: "acme/large", can: {cache_write_apart: true}}]\nusage: {excludes: [reasoning]}\n'
    assert compiled(text).offers["acme/large"][0].usage.excludes == {"cache_write", "reasoning"}


def test_usage_rules_missing_in_the_endpoint_come_from_the_provider():
    text = SMALL.replace("/chat/completions", "{path: /c, usage: {words: $.w, excludes: []}}") + (
        "usage: {excludes: [reasoning], read: {input: $.in}}\n"
    )
    usage = compiled(text).offers["acme/large"][0].usage
    assert (usage.excludes, usage.words_of({"w": "deep"})) == (frozenset(), ("deep",))
    assert usage.read({"in": 3}) == {"input": 3}


def test_a_model_is_served_by_the_protocols_of_its_type():
    made = compiled(RICH, secrets=SECRETS).offers
    assert {name: [offer.endpoint for offer in offers] for name, offers in made.items()} == {
        "acme/large": ["chat", "messages"],
        "acme/large-2": ["chat"],
        "acme/embed": ["embeddings"],
    }
    assert made["acme/embed"][0].batch == 96
    assert made["acme/large"][1].framing == "ndjson"


def test_an_offer_has_its_model_and_its_price():
    chat = rich()
    assert chat.model_facts == {
        "id": "acme/large",
        "upstream": "large/2026:1",
        "provider": "acme",
        "name": "large",
        "type": "chat",
        "context": 1000,
        "max_output": 100,
        "tokenizer": "Other",
        "service_tiers": [],
        "input_modalities": ["text"],
        "output_modalities": ["text"],
        "protocol": "chat",
    }
    assert (chat.route, chat.model.priority, chat.model.weight) == ("acme/large/2026:1", 2, 3)
    assert chat.prices_text == '{"prompt":"1.50","completion":"2","unit":1000000}'
    assert str(chat.tariff.pricing.prices["prompt"]) == "1.50"


def test_the_protocol_of_an_offer_is_its_mapping():
    text = SMALL.replace("{chat: /chat/completions}", "{chat: {path: /c, mapping: acme-chat}}")
    assert (offer(text).protocol, offer(text).endpoint) == ("acme-chat", "chat")


def test_edits_read_the_providers_variables():
    text = SMALL + "vars: {region: eu}\nrequest: [{set: {where: $vars.region}}]\n"
    assert offer(text).request_edits({}, Context())["where"] == "eu"


def test_edits_call_the_functions_of_the_file():
    text = SMALL + 'define:\n  twice($x): "{{ $x ~ $x }}"\nrequest: [{set: {a: "{{ twice($.b) }}"}}]\n'
    assert offer(text).request_edits({"b": "z"}, Context()) == {"b": "z", "a": "zz"}


def test_auth_options_are_computed_and_not_shown():
    text = SMALL + "vars: {region: us-east-1}\n"
    text += (
        "auth: {kind: sigv4, service: bedrock, region: $vars.region, access_key: $secret.ACME_KEY, secret_key: x, "
        "session_token: $secret.NO?}\n"
    )
    auth = offer(text).auth
    assert (auth.kind, auth.options) == (
        "sigv4",
        {"service": "bedrock", "region": "us-east-1", "access_key": "sk-canary", "secret_key": "x"},
    )
    assert "sk-canary" not in repr(auth)
    assert offer(SMALL).auth is None


def test_a_token_is_shared_only_by_offers_that_read_it_the_same_way():
    """A reload with a corrected `token:` used to keep the value read by the earlier one until it expired."""
    auth = "auth: {kind: oauth_client, token_url: https://x.example/t, body: {a: b}, token: %s}\n"
    wrong, right, again = (offer(SMALL + auth % token).auth.key for token in ("$.kind", "$.token", "$.token"))
    assert right == again != wrong


def test_the_expiry_of_a_token_may_be_computed_from_a_time():
    auth = "auth: {kind: oauth_client, token_url: https://x.example/t, body: {a: b}, token: $.iam, expires_in: %s}\n"
    reads = offer(SMALL + auth % '"{{ ($.until | seconds) - $now }}"').auth.reads
    assert 3.1e9 > reads["expires_in"]({"until": "2100-01-01T00:00:00.5Z"}, answer_headers={}) > 1e9
    assert reads["token"]({"iam": "t"}, answer_headers={}) == "t"


def test_a_provider_that_is_off_has_no_offers_but_is_still_checked():
    off = replace(config(SMALL), off="secret ACME_KEY is not set")
    assert compile_provider(off, {}, Secrets()).offers == {}
    broken = replace(config(SMALL + "request: [{dorp: [x]}]\n"), off="secret ACME_KEY is not set")
    with pytest.raises(ConfigErrors, match="did you mean `drop`"):
        compile_provider(broken, {}, Secrets())


MISTAKES = {
    "an unknown edit": (
        "request: [{renmae: {a: b}}]",
        "providers/acme.yaml:9:12: unknown edit `renmae` (did you mean `rename`?)",
    ),
    "a model edit": ("policies: [{match: [x], request: [{clamp: {a: 1}}]}]", "`clamp` takes [lowest, highest]"),
    "an unknown variable": (
        "vars: {region: eu}\nquery: {a: $vars.regoin}",
        "`$vars` has no field `regoin` (did you mean `region`?)",
    ),
    "an unknown variable in an edit": (
        "vars: {region: eu}\nrequest: [{set: {a: $vars.regoin}}]",
        "`$vars` has no field `regoin` (did you mean `region`?)",
    ),
    "an environment variable": (
        'query: {x: "{{ $ACME_KEY }}"}',
        "unknown name `$ACME_KEY` (an environment variable is `$secret.ACME_KEY`)",
    ),
    "an unknown field of the model": (
        "query: {a: $model.upstrem}",
        "`$model` has no field `upstrem` (did you mean `upstream`?)",
    ),
    "an error template": ('errors: {message: "{{ $.a | stripp }}"}', "unknown filter `stripp` (did you mean `strip`?)"),
    "an error rule that matches all": ("errors: {rules: [{verdict: next}]}", "a rule needs `when` or `status`"),
    "a header of an answer by a name it never has": (
        "errors: {message: \"$answer_headers['X-Why']\"}",
        "`$answer_headers` has no `X-Why`: headers are read by their lower-case names ($answer_headers['x-why'])",
    ),
    "an error rule's expression": ("errors: {rules: [{verdict: next, when: $.a = 1}]}", "the expression"),
    "a variable of the environment": ("query: {a: $env.ACME_KEY}", "unknown name `$env` (did you mean `$secret`?"),
    "a usage template": ("usage: {read: $x.a}", "unknown name `$x`"),
    "a function": ("define: {f(x): 1}", "`f(x)` is no function header"),
    "a caller's secret in a template": (
        "auth: {kind: none}\nrequest: [{default: {key: \"{{ 'x' ~ $headers.authorization }}\"}}]",
        "`authorization` of a caller is for nobody else to see",
    ),
    "a caller's secret in an edit": (
        "request: [{set: {key: \"$headers['X-Api-Key']\"}}]",
        "`X-Api-Key` of a caller is for nobody else to see",
    ),
    "a header by a name it never has": (
        "request: [{set: {words: \"$headers['Acme-Beta']\"}}]",
        "by their lower-case names ($headers['acme-beta'])",
    ),
    "a header, where an answer is edited": (
        "response: [{set: {words: $headers.beta}}]",
        "`$headers` cannot be read here",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_config_error_names_its_place(case):
    text, message = MISTAKES[case]
    with pytest.raises(ConfigErrors) as errors:
        compiled(SMALL.replace("headers:", "about: x\nheaders:") + text + "\n")
    assert message in str(errors.value)
    assert str(errors.value).startswith("providers/acme.yaml:")


def test_errors_in_the_parts_outside_the_body_are_reported_with_their_places():
    send = """speaks:
  chat:
    path: /chat
    query: {heat: $.temperature}
    send: {method: GET, path: "/{{ $.model | lowr }}", query: {heat: $tempreature}, body: $.messages}
"""
    with pytest.raises(ConfigErrors) as errors:
        compiled(SMALL.replace("speaks: {chat: /chat/completions}\n", send))
    assert [
        (problem.mark.line, problem.mark.column, problem.message, problem.hint) for problem in errors.value.problems
    ] == [
        (7, 19, "there is no document here, so `$` reads nothing", "the request is read under `send:` of an endpoint"),
        (8, 46, "unknown filter `lowr`", "did you mean `lower`?"),
        (8, 70, "unknown name `$tempreature`", "a field of the document is `$.tempreature`"),
        (8, 91, "a GET has no body", "write it under `query` or `path`"),
    ]


def test_a_variable_without_a_value_is_no_error():
    assert compiled(SMALL + "vars: {zone: $secret.UNSET?}\n").warnings == ()


def test_all_errors_of_a_file_are_reported_at_once():
    with pytest.raises(ConfigErrors) as errors:
        compiled(SMALL + "request: [{dorp: [x]}]\nresponse: [{set: [x]}]\nerrors: {message: $y}\nquery: {a: $vars.b}\n")
    assert len(errors.value.problems) == 4


def test_a_url_with_a_missing_value_names_it():
    text = (
        SMALL.replace("https://api.acme.example/v1", '"https://{{ $vars.host }}/v1"') + "vars: {host: $secret.HOST?}\n"
    )
    with pytest.raises(ConfigErrors, match=r"the address is incomplete for acme/large: `\$vars.host` has no value"):
        compiled(text)


@pytest.mark.parametrize(
    ("speaks", "hub", "message"),
    [
        ("own-embeddings", "", "mapping `own` is not for embeddings, as its endpoint (hub: embeddings)"),
        ("own-chat", "hub: embeddings\n", "mapping `own` is for embeddings (their endpoint is `embeddings` or ends in"),
        ("own-embeddings", "hub: embeddings\n", ""),
    ],
)
def test_an_endpoint_and_its_mapping_must_have_the_same_purpose(speaks, hub, message):
    made = "vectors: $.v" if hub else "parts: [{kind: text, text: $.t}]"
    own = compile_mapping(
        document(
            f"mapping: own\n{hub}request: {{from_hub: {{a: $.model}}}}\nresponse: {{to_hub: {{{made}}}}}\n",
            "mappings/own.yaml",
        )
    )
    text = f"provider: acme\nurl: https://a.example\nspeaks: {{{speaks}: {{path: /x, mapping: own}}}}\n"
    if not message:
        compiled(text, mappings={"own": own})
        return
    with pytest.raises(ConfigErrors, match=re.escape(message)):
        compiled(text, mappings={"own": own})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("header: x access", 'auth.header: found "x access", wanted the name of a header'),
        ("expires_in: valid", 'auth.expires_in: found "valid", wanted where the seconds are (such as $.valid)'),
    ],
)
def test_the_header_and_the_expiry_of_a_token_are_checked(more, message):
    auth = f"auth: {{kind: oauth_client, token_url: https://a.example/t, client_id: a, client_secret: b, {more}}}\n"
    with pytest.raises(ConfigErrors, match=re.escape(message)):
        compiled(SMALL + auth)


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        ("usage: {read: {input: usage.in, output: $.usage.out}}", ["`usage.in` stays as it stands"]),
        ("request: [{set: {a: vars.org, b: x.y, c: $vars.org}}]", ["`vars.org` stays as it stands"]),
        ("response: [{set: {object: chat.completion}}]", []),
        (
            "images: {submit: {call: POST https://a.io/?n='a', body: input.image, headers: {a: nothing}, result: {}}}",
            ["`input.image` stays as it stands", "`nothing` without the `$` is a text"],
        ),
        ('response: [{set: {a: " \'x\' }}", b: "{}}"}}]', ["`}}` closes nothing"]),
    ],
)
def test_a_path_without_its_dollar_sign_causes_a_warning(more, warned):
    text = SMALL + f"vars: {{org: a}}\n{more}\n"
    assert [warning.message for warning in compiled(text).warnings] == warned


@pytest.mark.parametrize(
    ("rule", "warned"),
    [
        ("{status: 200, when: $.code != 0}", True),
        ("{when: not $.choices}", True),
        ("{status: 200, when: $.code is present and $.code != 0}", False),
        ("{status: 400, when: $.code != 0}", False),
        ("{status: 200, when: $.code > 0}", False),
    ],
)
def test_an_error_rule_that_matches_ordinary_events_causes_a_warning(rule, warned):
    """`!=` with an absent value is true, and events of a stream have fewer fields than a whole answer."""
    chat = compile_mapping(
        document(unspoken("chat").replace("stream: {", "stream: {to_hub: {always: []}, "), "mappings/chat.yaml")
    )
    text = SMALL + f"errors: {{rules: [{rule.replace('}', ', verdict: next}')}]}}\n"
    found = [warning.message for warning in compiled(text, mappings={"chat": chat}).warnings]
    assert [message.startswith("this holds where what it looks at is absent") for message in found] == [True] * warned


@pytest.mark.parametrize(
    ("value", "raw", "message"),
    [
        ("sk-canary/12345678", "", 'found "[secret]/chat", wanted an address like https://api.example/v1'),
        ("sk-canary/12345678", " | raw", 'found "[secret]/chat", wanted an address like https://api.example/v1'),
        ("http://127.0.0.1:9000", "", "https://api.example/v1 (what stands in braces is escaped: {{ $vars.x | raw }})"),
    ],
)
def test_an_invalid_url_shows_no_secret_and_explains_escaping(value, raw, message):
    text = SMALL.replace("https://api.acme.example/v1", f'"{{{{ $vars.base{raw} }}}}"') + "vars: {base: $secret.BASE}\n"
    with pytest.raises(ConfigErrors) as errors:
        compiled(text, secrets={"ACME_KEY": "k", "BASE": value})
    assert message in str(errors.value).replace("/chat/completions", "/chat") and "canary" not in str(errors.value)


def test_no_secret_is_part_of_an_error_message():
    with pytest.raises(ConfigErrors) as errors:
        compiled(SMALL + "request: [{dorp: [x]}]\n", secrets={"ACME_KEY": "sk-canary"})
    assert "sk-canary" not in str(errors.value)


# -- examples ---------------------------------------------------------------------------------------------------------

EXAMPLES = (
    SMALL
    + """
request: [{rename: {a: b}}, {default: {max_tokens: $model.max_output}}, {refuse: no audio, when: $.audio}, {drop: [user]}]
response: [{rename: {x: y}}]
stream: [{drop: [noise]}]
errors: {message: $.oops, credit: [402], rules: [{when: $.code == 7, verdict: later, as: 429}]}
usage: {read: {input: $.tokens.in}}
discover: {url: "https://api.acme.example/models", list: $.data, model: {id: "acme/{{ $.id }}", upstream: $.id, context: $.len, price: {prompt: $.cost, unit: 1}}}
examples:
"""  # noqa: E501
)


@pytest.mark.parametrize(
    "example",
    [
        "{of: request, given: {a: 1}, expect: {b: 1}}",
        "{of: request, given: {a: 1}, expect: {b: 1, max_tokens: 9}, with: {model: {max_output: 9}}}",
        "{of: request, given: {audio: 1}, refused: no audio}",
        "{of: request, given: {user: u}, expect: {}, lost: [user]}",
        "{of: response, given: {x: 1}, expect: {y: 1}}",
        "{of: stream, given: {noise: 1, k: 2}, expect: {k: 2}}",
        (
            "{of: errors, given: {status: 402, body: {oops: broke}}, expect: {verdict: next, alarm: balance, message: "
            "broke}}"
        ),
        "{of: errors, given: {code: 7}, expect: {verdict: later, as: 429}}",
        "{of: errors, given: {fine: true}, expect: null}",
        "{of: usage, given: {tokens: {in: 3}}, expect: {input: 3}}",
        (
            "{of: discover, given: {data: [{id: m1, len: 10, cost: 0.5}]}, expect: [{id: acme/m1, upstream: m1, "
            "context: 10}]}"
        ),
    ],
)
def test_an_example_that_passes_reports_nothing(example):
    assert run_provider_examples(compiled(EXAMPLES + f"  - {example}\n")) == []


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ("{of: request, given: {a: 1}, expect: {a: 1}}", "differs at a: found nothing, wanted 1"),
        ("{name: renames, of: request, given: {a: 1}, expect: {a: 1}}", "example `renames` differs"),
        ("{of: request, given: {audio: 1}, expect: {}}", "is refused: no audio"),
        ("{of: request, given: {a: 1}, refused: no audio}", "is not refused"),
        ("{of: request, given: {user: u}, expect: {}, lost: []}", 'loses ["user"], wanted []'),
        ("{of: reqest, given: {}, expect: {}}", "did you mean `request`"),
        ("{of: request, expect: {}}", "an example needs `given`"),
        ("{of: request, given: {}, expect: {}, wiht: {}}", "unknown key `wiht`"),
        ("{of: request, given: {b: 1}, expect: {b: 1}, with: {vars: {x: 1}}}", "unknown key `vars` (one of model, "),
        ("{of: request, given: {}, expect: {}, with: {model: acme/lrage}}", "no model `acme/lrage`"),
        ("{of: request, given: {}, expect: {}, with: {protocol: messages}}", "does not speak `messages`"),
        ("{of: errors, given: {status: 500, body: {}}, expect: {verdict: stop}}", 'differs at verdict: found "later"'),
    ],
)
def test_an_example_that_fails_shows_the_result(example, message):
    problems = run_provider_examples(compiled(EXAMPLES + f"  - {example}\n"))
    assert message in "\n".join(problem.render() for problem in problems)


def test_an_example_is_run_as_the_model_it_names():
    text = EXAMPLES.replace("upstream: large-2026,", "upstream: large-2026, max_output: 77,")
    text += "  - {of: request, given: {model: large-2026}, expect: {model: large-2026, max_tokens: 77}}\n"
    assert run_provider_examples(compiled(text)) == []


def test_an_example_is_run_with_the_abilities_of_its_model():
    text = (
        SMALL
        + """
can: {near: provider}
policies: [{match: "*", can: {near: policy}}]
request: [{set: {message: $can.near}}]
examples:
  - {of: request, model: acme/large, given: {}, expect: {message: policy}}
  - {of: request, given: {}, expect: {message: provider}}
"""
    )
    assert run_provider_examples(compiled(text)) == []


def test_an_example_with_a_model_that_is_listed_while_running_gets_its_policies():
    text = (
        SMALL
        + """
policies: [{match: "acme/new-*", request: [{set: {message: $model.context}}]}]
examples:
  - {of: request, with: {model: {id: acme/new-1, context: 9}}, given: {}, expect: {message: 9}}
  - {of: request, with: {model: {context: 9}}, given: {}, expect: {}}
"""
    )
    assert run_provider_examples(compiled(text)) == []


MARKED = SMALL.replace(
    "models:",
    """in_text: [{from: <a>, to: </a>, kind: reasoning}]
policies:
  - {match: "acme/m*", protocols: [chat], in_text: [{from: <b>, to: </b>, kind: reasoning}]}
  - {match: "acme/medium", in_text: []}
models:
  acme/medium: {price: {prompt: "1", completion: "2", unit: 1000000}}
  acme/mini: {price: {prompt: "1", completion: "2", unit: 1000000}}
  acme/own: {in_text: [{from: <c>, kind: text}], price: {prompt: "1", completion: "2", unit: 1000000}}""",
)


@pytest.mark.parametrize(
    ("model", "only_mark"), [("acme/large", "<a>"), ("acme/mini", "<b>"), ("acme/medium", None), ("acme/own", "<c>")]
)
def test_only_the_marks_of_the_nearest_scope_apply(model, only_mark):
    marks = offer(MARKED, model).in_text
    found = (
        []
        if marks is None
        else [
            mark
            for mark in ("<a>", "<b>", "<c>")
            if len(marks.split([{"kind": "text", "text": f"x{mark}y"}], Context())) > 1
        ]
    )
    assert found == ([only_mark] if only_mark and only_mark != "<c>" else [])
    assert (marks is None) == (only_mark is None)


def test_an_invalid_mark_of_a_provider_is_an_error_of_its_file():
    with pytest.raises(ConfigErrors) as caught:
        compiled(MARKED.replace("from: <b>", "form: <b>"))
    assert "unknown key `form` (did you mean `from`?)" in caught.value.problems[0].render()


def test_a_request_that_cannot_be_written_is_the_callers_mistake():
    """The arguments of a tool call are JSON of their own: with an integer this large, they cannot be written again."""
    with pytest.raises(UnfitRequest, match="cannot be converted for this model") as error:
        offer(SMALL).request_parts({"input": {"n": 2**70}}, stream=False)
    assert (error.value.status, error.value.code) == (400, "cannot_convert")
