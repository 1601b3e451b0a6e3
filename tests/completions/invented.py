"""An invented wire format and a provider that speaks it: two mappings, which read whole answers or also streams, an
answer in it, and what a chat client receives."""

import json

ASK = {"model": "acme/one", "messages": [{"role": "user", "content": "hello"}]}
JSON = {"content-type": "application/json"}

MAPPING = """
mapping: NAME
request:
  from_hub: {prompt: "{{ $.turns[*].parts[*].text | join }}", live: $.stream}
response:
  to_hub:
    parts:
      - {kind: text, text: $.output}
      - {$each: $c in $.calls, kind: tool_call, name: $c.name, args: "{{ $c.with | json }}"}
    stop: $.reason
    usage: {input: $.tokens_in, output: $.tokens_out}
error:
  to_hub: {message: $.trouble}
"""
STREAM = """
stream:
  to_hub:
    always:
      - {$when: $.trouble, error: {message: $.trouble}}
      - {delta: {kind: text, text: $.bit}}
      - {$when: $.tokens_in, usage: {input: $.tokens_in, output: $.tokens_out}}
      - {stop: {reason: $.reason}}
"""
ANSWER = {"output": "hi there", "reason": "end", "tokens_in": 10, "tokens_out": 5}
BITS = [{"bit": "hi"}, {"bit": " there"}, {"reason": "end", "tokens_in": 10, "tokens_out": 5}]


def provider(name, mapping, *, priority=0, more="", framing="sse"):
    return f"""
provider: {name}
url: app://{name}
priority: {priority}
{more}
speaks: {{{mapping}: {{path: /answer, framing: {framing}}}}}
models:
  acme/one: {{upstream: up-1, price: {{prompt: "0.001", completion: "0.002"}}}}
"""


def write_mapping(folder, name, text=MAPPING):
    (folder / "mappings").mkdir(exist_ok=True)
    (folder / "mappings" / f"{name}.yaml").write_text(text.replace("NAME", name))


def events_of(reply):
    return [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]


def text_of(reply):
    return "".join(choice["delta"].get("content") or "" for event in events_of(reply) for choice in event["choices"])
