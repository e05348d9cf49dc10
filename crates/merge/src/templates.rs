//! Chat templates that are known by a name, as `chat_template: chatml`.
//!
//! Each is one line: what a line break in a template means depends on its reader.

/// The names, and how a conversation is written out.
const TEMPLATES: [(&str, &str); 5] = [
    (
        "alpaca",
        concat!(
            "{% for message in messages %}",
            "{% if message['role'] == 'system' %}{{ message['content'] | trim + '\\n\\n' }}",
            "{% elif message['role'] == 'user_context' %}{{ '### Input:\\n' + message['content'] | trim + '\\n\\n' }}",
            "{% elif message['role'] == 'user' %}{{ '### Instruction:\\n' + message['content'] | trim + '\\n\\n' }}",
            "{% else %}{{ '### Response:\\n' + message['content'] | trim + '\\n\\n' }}{% endif %}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '### Response:\\n' }}{% endif %}",
        ),
    ),
    (
        "chatml",
        concat!(
            "{% for message in messages %}",
            "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
        ),
    ),
    (
        "exaone",
        concat!(
            "{% for message in messages %}",
            "{% if loop.first and message['role'] != 'system' %}{{ '[|system|][|endofturn|]\\n' }}{% endif %}",
            "{{ '[|' + message['role'] + '|]' + message['content'] }}",
            "{% if message['role'] == 'user' %}{{ '\\n' }}{% else %}{{ '[|endofturn|]\\n' }}{% endif %}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '[|assistant|]' }}{% endif %}",
        ),
    ),
    (
        "llama3",
        concat!(
            "{{ bos_token }}",
            "{% for message in messages %}",
            "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}",
            "{% endfor %}",
            "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}",
        ),
    ),
    (
        "mistral",
        concat!(
            "{{ bos_token }}",
            "{% set words = namespace(system='') %}",
            "{% for message in messages %}",
            "{% if message['role'] == 'system' %}{% set words.system = message['content'] + '\\n\\n' %}",
            "{% elif message['role'] == 'user' %}{{ '[INST] ' + words.system + message['content'] + ' [/INST]' }}{% set words.system = '' %}",
            "{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}",
            "{% endfor %}",
        ),
    ),
];

/// The template of that name.
pub(crate) fn find(name: &str) -> Option<&'static str> {
    let found = TEMPLATES.iter().find(|(known, _)| *known == name)?;
    Some(found.1)
}

/// The names of all.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TEMPLATES.iter().map(|(name, _)| *name)
}
