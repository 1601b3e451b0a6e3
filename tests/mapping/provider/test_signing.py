"""Signatures written in YAML (`auth: {kind: signed}`) equal those that the vendors compute."""

import json
from datetime import UTC, datetime
from uuid import UUID

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from mapping.provider_files import compiled
from tollgate.errors import ConfigErrors, UpstreamFailed
from tollgate.mapping.provider import run_provider_examples
from tollgate.mapping.provider.signing import Signing
from tollgate.upstream.sigv4 import Credentials, sign

PROVIDER = """
provider: acme
url: https://acme.example/v1
speaks: {chat: /chat/completions}
auth: {kind: signed, adds: ADDS}
models: {acme/one: {price: {prompt: "1", completion: "1", unit: 1000000}}}
"""

DERIVED_FROM_THE_DAY = """
    $let:
      day: "{{ $now | date('%Y-%m-%d') }}"
      scope: "{{ $day }}/cvm/tc3_request"
      canonical: "POST\\n/\\n\\ncontent-type:{{ $call.headers['content-type'] }}\\nhost:{{ $call.host }}\\n\\n\
content-type;host\\n{{ $call.body | digest('sha256') }}"
      text: "TC3-HMAC-SHA256\\n{{ $now }}\\n{{ $scope }}\\n{{ $canonical | digest('sha256') }}"
    headers:
      Authorization: "{{ $text | hmac('sha256', ['TC3' ~ $secret.KEY, $day, 'cvm', 'tc3_request']) }}"
      X-TC-Timestamp: $now
"""

SIGV4 = """
    $let:
      moment: "{{ $now | date('%Y%m%dT%H%M%SZ') }}"
      scope: "{{ $now | date('%Y%m%d') }}/us-east-1/bedrock/aws4_request"
      canonical: "{{ $call.method }}\\n{{ $call.path | percent('/~') }}\\n{{ $call.query }}\\n\
content-type:{{ $call.headers['content-type'] }}\\nhost:{{ $call.host }}\\nx-amz-date:{{ $moment }}\\n\\n\
content-type;host;x-amz-date\\n{{ $call.body | digest('sha256') }}"
      text: "AWS4-HMAC-SHA256\\n{{ $moment }}\\n{{ $scope }}\\n{{ $canonical | digest('sha256') }}"
      key: "{{ ['AWS4' ~ $secret.KEY, $now | date('%Y%m%d'), 'us-east-1', 'bedrock', 'aws4_request'] }}"
    headers:
      x-amz-date: $moment
      authorization: "AWS4-HMAC-SHA256 Credential=AKID/{{ $scope }}, SignedHeaders=content-type;host;x-amz-date, \
Signature={{ $text | hmac('sha256', $key) }}"
"""

TOKEN = """
    $let:
      head: "{{ {'alg': 'ALG', 'typ': 'JWT'} | json | to_base64('url') }}"
      claims: "{{ {'iss': 'us', 'exp': $now + 600} | json | to_base64('url') }}"
    headers: {authorization: "Bearer {{ $head }}.{{ $claims }}.{{ ($head ~ '.' ~ $claims) | SIGN }}"}
"""


def signing(adds: str) -> Signing:
    text = PROVIDER.replace(" {kind: signed, adds: ADDS}", f"\n  kind: signed\n  adds:{adds}")
    made = compiled(text).signing
    assert made is not None
    return made


def test_a_key_derived_from_the_day_signs_as_the_vendor_documents() -> None:
    body = r'{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}'
    call = {
        "host": "cvm.tencentcloudapi.com",
        "body": body,
        "headers": {"content-type": "application/json; charset=utf-8"},
    }
    added = signing(DERIVED_FROM_THE_DAY).adds(call, 1551113065, {"KEY": "Gu5t9xGARNpq86cd98joQYCN3*******"})
    assert added == {
        "headers": {
            "Authorization": "2230eefd229f582d8b1b891af7107b91597240707d778ab3738f756258d7652c",
            "X-TC-Timestamp": "1551113065",
        }
    }


BODIES = {"none": b"", "text": '{"text": "hé 😀"}'.encode(), "bytes": bytes(range(256))}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_signature_in_yaml_equals_the_one_in_code(body: bytes) -> None:
    at, url = datetime(2026, 11, 20, 12, 34, 56, tzinfo=UTC), "https://x.amazonaws.com/model/a%3Ab/converse?a=1&b=2"
    credentials = Credentials("AKID", "secret", "us-east-1", "bedrock")
    wanted = sign(credentials, "POST", url, {"content-type": "application/json"}, body, at)
    call = {
        "method": "POST",
        "host": "x.amazonaws.com",
        "path": "/model/a%3Ab/converse",
        "query": "a=1&b=2",
        "headers": {"content-type": "application/json"},
        "body": body.decode("utf-8", "surrogateescape"),
    }
    assert signing(SIGV4).adds(call, int(at.timestamp()), {"KEY": "secret"}) == {"headers": wanted}


def test_a_token_is_signed_with_a_shared_or_a_private_key() -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    public = key.public_key()
    for algorithm, secret, wanted, step in (
        ("HS256", "s" * 32, "s" * 32, "hmac('sha256', $secret.KEY, 'base64url')"),
        ("RS512", pem, public, "rsa('sha512', $secret.KEY, 'base64url')"),
        ("PS256", pem, public, "rsa('pss-sha256', $secret.KEY, 'base64url')"),
    ):
        added = signing(TOKEN.replace("ALG", algorithm).replace("SIGN", step)).adds({}, 4_000_000_000, {"KEY": secret})
        token = added["headers"]["authorization"].removeprefix("Bearer ")
        claims = jwt.decode(token, wanted, algorithms=[algorithm])  # type: ignore[arg-type]
        assert claims == {"iss": "us", "exp": 4_000_000_600}


def test_an_invalid_key_adds_nothing() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for algorithm, key in (("sha256", "no pem"), ("pss-sha512", short.decode())):
        made = signing(TOKEN.replace("SIGN", f"rsa('{algorithm}', $secret.KEY, 'base64url')"))
        assert made.adds({}, 0, {"KEY": key}) == {}


def test_a_signature_that_cannot_be_computed_fails_the_request_with_its_place() -> None:
    made = signing('\n    headers: {a: "{{ $call.body + 1 }}"}\n')
    with pytest.raises(UpstreamFailed, match=r"auth\.adds: .*providers/acme\.yaml:\d+"):
        made.adds({"body": "x"}, 0)


def test_a_signature_may_contain_the_variables_of_the_provider() -> None:
    text = PROVIDER.replace("ADDS", "{headers: {x-app: $vars.app}, query: {region: $vars.region}}")
    made = compiled(text + "vars: {app: 7, region: eu}\n").signing
    assert made is not None and made.adds({}, 0) == {"headers": {"x-app": "7"}, "query": {"region": "eu"}}


def test_an_example_shows_a_signature_without_the_real_secret() -> None:
    adds = "{headers: {x-sign: \"{{ ($call.body ~ $now) | hmac('md5', $secret.KEY) }}\", x-once: $call.nonce}}"
    given = {
        "of": "auth",
        "with": {"secret": {"KEY": "k"}},
        "given": {"now": 5, "call": {"body": "a"}},
        "expect": {"headers": {"x-sign": "ed97ad30db6b119c88d4e54311960dbc"}},
    }
    text = PROVIDER.replace("ADDS", adds) + f"examples:\n  - {json.dumps(given)}\n"
    assert run_provider_examples(compiled(text)) == []
    assert "differs" in str(run_provider_examples(compiled(text.replace('"now": 5', '"now": 6')))[0])
    [problem] = run_provider_examples(compiled(text.replace(f"auth: {{kind: signed, adds: {adds}}}\n", "")))
    assert "this provider has no `auth: {kind: signed}`" in str(problem)


TOKEN_REQUEST = """{kind: oauth_client, token_url: "https://t.example/t", headers: {RqUID: "{{ $nonce | uuid }}"},
  form: {scope: all, proof: "{{ $now | text | hmac('md5', $secret.KEY) }}"}}"""


def test_a_token_request_may_contain_the_time_and_a_nonce() -> None:
    """GigaChat's token request requires a new `RqUID` each time; a client's assertion has its own time."""
    auth = (
        compiled(PROVIDER.replace("{kind: signed, adds: ADDS}", TOKEN_REQUEST), {"KEY": "k"}).offers["acme/one"][0].auth
    )
    assert auth is not None and auth.anew is not None
    first, second = auth.anew(), auth.anew()
    assert first.headers != second.headers and UUID(first.headers["RqUID"]).version == 4
    assert first.form is not None and first.form["scope"] == "all" and len(first.form["proof"]) == 32
    again = (
        compiled(PROVIDER.replace("{kind: signed, adds: ADDS}", TOKEN_REQUEST), {"KEY": "k"}).offers["acme/one"][0].auth
    )
    assert again is not None and again.key == auth.key, "a reload keeps the current token"
    other = (
        compiled(PROVIDER.replace("{kind: signed, adds: ADDS}", TOKEN_REQUEST), {"KEY": "l"}).offers["acme/one"][0].auth
    )
    assert other is not None and other.key != auth.key


def test_a_function_may_return_the_nonce_of_a_token_request() -> None:
    request = TOKEN_REQUEST[: TOKEN_REQUEST.index("headers")].replace(
        "oauth_client", "oauth_client, client_id: a, client_secret: b"
    )
    request += 'headers: {RqUID: "{{ once() }}"}}'
    text = PROVIDER.replace("{kind: signed, adds: ADDS}", request) + 'define: {once(): "{{ $nonce | uuid }}"}\n'
    auth = compiled(text, {"KEY": "k"}).offers["acme/one"][0].auth
    assert auth is not None and auth.anew is not None and auth.anew().headers != auth.anew().headers


def test_an_example_shows_a_token_request() -> None:
    given = {
        "of": "auth",
        "with": {"secret": {"KEY": "k"}},
        "given": {"now": 5},
        "expect": {
            "headers": {"RqUID": "01234567-89ab-4def-8123-456789abcdef"},
            "form": {"scope": "all", "proof": "53b4bc89c9e0045e587d05e6093d3c27"},
        },
    }
    text = PROVIDER.replace("{kind: signed, adds: ADDS}", TOKEN_REQUEST) + f"examples:\n  - {json.dumps(given)}\n"
    assert run_provider_examples(compiled(text)) == []
    assert "differs" in str(run_provider_examples(compiled(text.replace('"now": 5', '"now": 6')))[0])


MISTAKES = {
    "no adds": ("{kind: signed}", "`signed` needs adds"),
    "a text": ("{kind: signed, adds: x}", "`adds` is no object (what a call gets"),
    "an unknown part": ("{kind: signed, adds: {header: {a: b}}}", "`header` cannot be added to a call (did you mean"),
    "an unknown field of the call": (
        "{kind: signed, adds: {headers: {a: $call.boddy}}}",
        "`$call` has no field `boddy` (did you mean `body`?)",
    ),
    "an unknown digest": (
        "{kind: signed, adds: {headers: {a: \"{{ $call.body | digest('sha-256') }}\"}}}",
        "`digest` does not know 'sha-256' (it takes one of sha256, ",
    ),
    "an unknown notation": (
        "{kind: signed, adds: {headers: {a: \"{{ $call.body | hmac('md5', $secret.KEY, 'b64') }}\"}}}",
        "`hmac` does not know 'b64' (it takes one of hex, ",
    ),
    "a code of dates that differs by machine": (
        "{kind: signed, adds: {headers: {a: \"{{ $now | date('%c') }}\"}}}",
        "`date` does not know '%c' (it takes such as",
    ),
}


@pytest.mark.parametrize("auth, message", MISTAKES.values(), ids=MISTAKES)
def test_a_config_error_names_its_place(auth: str, message: str) -> None:
    with pytest.raises(ConfigErrors) as errors:
        compiled(PROVIDER.replace("{kind: signed, adds: ADDS}", auth))
    assert message in str(errors.value) and str(errors.value).startswith("providers/acme.yaml:")
