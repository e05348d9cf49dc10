//! Settings and addresses that the client of a service could not use: found here, with their names, before it panics over them.
//!
//! The client puts keys into headers and endpoints into URLs when it makes a request, and takes for granted that they fit. A key that
//! was read from a file with its line end does not.

use std::net::Ipv6Addr;

/// The first of these settings that cannot be used, and why. What a setting is worth stays out of the message.
pub(super) fn fault<'a>(
    settings: impl IntoIterator<Item = &'a (String, String)>,
) -> Option<String> {
    let mut each = settings.into_iter();
    each.find_map(|(name, value)| Some(format!("the setting `{name}` {}", reason(name, value)?)))
}

fn reason(name: &str, value: &str) -> Option<&'static str> {
    let name = name.to_ascii_lowercase();
    let has = |word: &str| name.contains(word);
    // The account of a service of Google is a whole document.
    let is_document = has("service_account_key") || name.ends_with("credentials");
    if is_document {
        return None;
    }
    if value.ends_with(['\n', '\r']) {
        return Some("ends in a line end");
    }
    if value.chars().any(char::is_control) {
        return Some("has a control character in it");
    }
    let is_url = has("endpoint") || has("base_url") || has("full_uri") || has("authority_host");
    if is_url && !has("use_") && !has("suffix") {
        return (!is_http_url(value)).then_some("is no URL such as `https://host:9000`");
    }
    if has("region") || has("bucket") {
        return (!is_name(value))
            .then_some("is no name: it has a character that names do not have");
    }
    let goes_into_a_header = has("key") || has("token") || has("secret") || has("customer");
    let is_file = has("file") || has("path");
    let fits = value
        .bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ');
    (goes_into_a_header && !is_file && !fits).then_some("has a character that no key has")
}

/// Whether the name of a bucket, with what may stand around it, can be a part of a URL.
pub(super) fn is_name(bucket: &str) -> bool {
    bucket
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-@$:".contains(&byte))
}

/// Whether requests can be sent there.
fn is_http_url(url: &str) -> bool {
    let lower = url.to_ascii_lowercase();
    let rest = ["http://", "https://"]
        .iter()
        .find_map(|scheme| lower.strip_prefix(scheme));
    let Some(rest) = rest.filter(|rest| rest.bytes().all(|byte| byte.is_ascii_graphic())) else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let (is_host, port) = match host.strip_prefix('[') {
        Some(host) => match host.split_once(']') {
            Some((address, port)) => (
                address.parse::<Ipv6Addr>().is_ok(),
                port.strip_prefix(':')
                    .or(Some(port).filter(|port| !port.is_empty())),
            ),
            None => return false,
        },
        None => {
            let (name, port) = host
                .split_once(':')
                .map_or((host, None), |(name, port)| (name, Some(port)));
            let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            (!name.is_empty() && name.bytes().all(is_name), port)
        }
    };
    is_host && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, value: &str) -> Option<String> {
        fault(&[(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn settings_that_cannot_be_sent_are_named_and_their_values_are_not() {
        for (name, value) in [
            ("aws_access_key_id", "AKIA\n"),
            ("aws_secret_access_key", "hidden\r\n"),
            ("aws_session_token", "hid\nden"),
            ("aws_session_token", "hiddén"),
            ("aws_region", "eu west"),
            ("aws_bucket", "a bucket"),
            ("aws_endpoint_url", "not a url"),
            ("aws_endpoint", "http://[::1"),
            ("aws_endpoint", "http://"),
            ("aws_endpoint", "ftp://host"),
            ("aws_endpoint", "http://host:port"),
            ("azure_storage_account_key", "hidden\n"),
            ("google_base_url", "hidden"),
        ] {
            let told = told(name, value).expect(name);
            assert!(told.contains(name) && !told.contains("hid"), "{told}");
        }
    }

    #[test]
    fn what_can_be_sent_is_not_complained_of() {
        for (name, value) in [
            ("aws_secret_access_key", "wJalr/XUt+nFEMI=="),
            ("aws_region", "eu-west-1"),
            ("aws_region", ""),
            ("aws_endpoint_url", "http://127.0.0.1:9000"),
            ("aws_endpoint_url", "https://s3.example.com/path"),
            ("aws_endpoint", "http://[::1]:9000"),
            ("aws_endpoint", "http://[::1]"),
            ("aws_web_identity_token_file", "/var/run/a file"),
            ("google_service_account_key", "{\n\"private_key\": \"…\"\n}"),
            ("google_application_credentials", "/a b/c.json"),
            ("azure_use_fabric_endpoint", "true"),
            ("azure_endpoint", "https://account.blob.core.windows.net"),
            ("azure_storage_sas_token", "?sv=2020&sig=a%2Bb"),
        ] {
            assert_eq!(told(name, value), None, "{name}");
        }
        assert!(
            is_name("container@account.dfs.core.windows.net")
                && !is_name("a b")
                && !is_name("a\nb")
        );
    }
}
