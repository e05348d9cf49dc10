//! As much of HTTP as clients of a bucket speak.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

/// A request, read.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) method: String,
    /// Path and query, as they were sent.
    pub(super) target: String,
    /// Without the bucket, decoded.
    pub(super) key: String,
    pub(super) query: BTreeMap<String, String>,
    /// With names in lower case.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
}

impl Request {
    /// The next request of a connection; none when it ends.
    pub(super) fn read(reader: &mut impl BufRead) -> Option<Self> {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
        let mut words = line.split_whitespace();
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = BTreeMap::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
            let Some((name, value)) = line.trim_end().split_once(':') else {
                break;
            };
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
        let len = headers.get("content-length");
        let len = len.and_then(|len| len.parse().ok()).unwrap_or(0);
        let mut body = vec![0; len];
        reader.read_exact(&mut body).ok()?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let path = decode(path);
        let key = path.trim_start_matches('/');
        let key = key.split_once('/').map_or("", |(_, key)| key).to_owned();
        let query = query.split('&').filter(|pair| !pair.is_empty());
        let query = query.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = query.map(|(name, value)| (decode(name), decode(&value.replace('+', " "))));
        Some(Self {
            query: query.collect(),
            method,
            key,
            headers,
            body,
            target,
        })
    }
}

/// An answer, to be written.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// An answer that says no, with the code of S3.
    pub(super) fn refusal(status: u16, code: &str) -> Self {
        let body =
            format!("<Error><Code>{code}</Code><Message>As the test asked.</Message></Error>");
        Self::new(status, body)
    }

    pub(super) fn with(mut self, name: &'static str, value: String) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Writes it; without its body if that is not asked for.
    pub(super) fn write(&self, request: &Request, writer: &mut impl Write) -> io::Result<()> {
        let mut head = format!(
            "HTTP/1.1 {} Answer\r\nContent-Length: {}\r\n",
            self.status,
            self.body.len()
        );
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let body = match request.method.as_str() {
            "HEAD" => &[][..],
            _ => &self.body,
        };
        writer.write_all(&[head.as_bytes(), body].concat())?;
        writer.flush()
    }
}

/// Replaces `%41` by `A`, and so on.
pub(super) fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (first, code) {
            (b'%', Some(code)) => {
                bytes.push(code);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
