"""Chat templates that offer tools, in the conventions of three families: name → (family of the tokenizer, template)."""

QWEN_TOOLS = """{%- if tools %}
{{- '<|im_start|>system\\n# Tools\\n<tools>' }}{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}
{{- '\\n</tools>\\nCall them so:\\n<tool_call>\\n{"name": <name>, "arguments": <object>}\\n</tool_call><|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages %}{% if message.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role != 'assistant' %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- else %}
{%- set content = message.content %}
{%- if '</think>' in content and loop.index0 < ns.last %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}
{{- '<|im_start|>assistant\\n' + content }}
{%- for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}
"""
LLAMA_TOOLS = """{{- bos_token }}
{%- for message in messages %}
{%- if message.tool_calls %}
{%- set call = message.tool_calls[0].function %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson }}
{{- '}<|eot_id|>' }}
{%- else %}
{{- '<|start_header_id|>' + ('ipython' if message.role == 'tool' else message.role) + '<|end_header_id|>\\n\\n' }}
{%- if tools and loop.first %}
{{- 'Respond with JSON.\\n\\n' }}{% for tool in tools %}{{ tool | tojson(indent=4) + '\\n\\n' }}{% endfor %}
{%- endif %}
{{- message.content | trim + '<|eot_id|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}
"""
MISTRAL_TOOLS = """{{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- if tools and loop.last %}{{- '[AVAILABLE_TOOLS] ' + tools | tojson + '[/AVAILABLE_TOOLS]' }}{% endif %}
{{- '[INST] ' + message.content + '[/INST]' }}
{%- elif message.role == 'tool' %}
{%- if message.tool_call_id is undefined or message.tool_call_id | length != 9 %}{{ raise_exception('ids have length 9') }}{% endif %}
{{- '[TOOL_RESULTS] ' + message.content + '[/TOOL_RESULTS]' }}
{%- elif message.tool_calls %}
{{- '[TOOL_CALLS] [{"name": "' + message.tool_calls[0].function.name + '", "arguments": ' }}
{{- message.tool_calls[0].function.arguments | tojson + ', "id": "' + message.tool_calls[0].id + '"}]' + eos_token }}
{%- else %}{{- ' ' + message.content + eos_token }}
{%- endif %}
{%- endfor %}
"""

TOOL_TEMPLATES = {"hermes": ("qwen3", QWEN_TOOLS), "llama": ("llama3", LLAMA_TOOLS), "mistral": ("llama2", MISTRAL_TOOLS)}
UNKNOWN_CALLS = QWEN_TOOLS.replace(
    '{"name": "\' + call.function.name + \'", "arguments": ', "<function=' + call.function.name + '>"
)
NO_ANSWERS = QWEN_TOOLS.replace("message.role == 'tool'", "message.role == 'tool' and raise_exception('no tool role')")
