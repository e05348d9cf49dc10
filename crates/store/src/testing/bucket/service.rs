//! As much of S3 as stores use: objects, ranges, conditions, listings and uploads in parts.

use super::date;
use super::http::{Answer, Request, decode};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

/// What the bucket holds.
#[derive(Debug, Default)]
pub(super) struct Service {
    pub(super) objects: BTreeMap<String, Stored>,
    pub(super) uploads: BTreeMap<String, Pending>,
    pub(super) ignores_conditions: bool,
    /// Names uploads and versions.
    count: u64,
}

#[derive(Debug)]
pub(super) struct Stored {
    bytes: Vec<u8>,
    tag: String,
    mark: Option<String>,
    modified: SystemTime,
}

#[derive(Debug)]
pub(super) struct Pending {
    key: String,
    parts: BTreeMap<u32, Vec<u8>>,
    begun: SystemTime,
}

impl Service {
    pub(super) fn age_uploads(&mut self, by: Duration) {
        for upload in self.uploads.values_mut() {
            upload.begun -= by;
        }
    }

    /// Carries a request out.
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        let asked = |name: &str| request.query.contains_key(name);
        match request.method.as_str() {
            "GET" if request.key.is_empty() && asked("uploads") => self.list_uploads(request),
            "GET" if request.key.is_empty() => self.list(request),
            "GET" | "HEAD" => self.get(request),
            "PUT" if asked("uploadId") => self.put_part(request),
            "PUT" if request.headers.contains_key("x-amz-copy-source") => self.copy(request),
            "PUT" => self.put(request, request.body.clone()),
            "POST" if asked("uploads") => self.begin(request),
            "POST" => self.complete(request),
            "DELETE" if asked("uploadId") => {
                match self.uploads.remove(&request.query["uploadId"]) {
                    Some(_) => Answer::new(204, ""),
                    None => Answer::refusal(404, "NoSuchUpload"),
                }
            }
            "DELETE" => {
                self.objects.remove(&request.key);
                Answer::new(204, "")
            }
            _ => Answer::refusal(405, "MethodNotAllowed"),
        }
    }

    fn put(&mut self, request: &Request, bytes: Vec<u8>) -> Answer {
        let is_conditional = request.headers.contains_key("if-none-match");
        if is_conditional && !self.ignores_conditions && self.objects.contains_key(&request.key) {
            return Answer::refusal(412, "PreconditionFailed");
        }
        self.count += 1;
        let tag = format!("\"{}\"", self.count);
        let stored = Stored {
            bytes,
            tag: tag.clone(),
            mark: request.headers.get("x-amz-meta-cairn").cloned(),
            modified: SystemTime::now(),
        };
        self.objects.insert(request.key.clone(), stored);
        Answer::new(200, "").with("ETag", tag)
    }

    fn copy(&mut self, request: &Request) -> Answer {
        let source = &request.headers["x-amz-copy-source"];
        let source = source.split_once('/').map_or("", |(_, key)| key);
        match self
            .objects
            .get(&decode(source))
            .map(|stored| stored.bytes.clone())
        {
            Some(bytes) => self.put(request, bytes),
            None => Answer::refusal(404, "NoSuchKey"),
        }
    }

    fn get(&self, request: &Request) -> Answer {
        let Some(stored) = self.objects.get(&request.key) else {
            return Answer::refusal(404, "NoSuchKey");
        };
        let len = stored.bytes.len();
        let range = request.headers.get("range");
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let answer = match range {
            None => Answer::new(200, stored.bytes.clone()),
            Some((first, last)) => {
                let first = first.parse().unwrap_or(usize::MAX);
                let end = last.parse().map_or(len, |last: usize| len.min(last + 1));
                if first >= end {
                    return Answer::refusal(416, "InvalidRange");
                }
                let shown = format!("bytes {first}-{}/{len}", end - 1);
                Answer::new(206, &stored.bytes[first..end]).with("Content-Range", shown)
            }
        };
        let answer = answer
            .with("ETag", stored.tag.clone())
            .with("Last-Modified", date::header(stored.modified));
        match &stored.mark {
            Some(mark) => answer.with("x-amz-meta-cairn", mark.clone()),
            None => answer,
        }
    }

    fn list(&self, request: &Request) -> Answer {
        let asked = |name: &str| request.query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (asked("prefix"), asked("delimiter"));
        let mut folders = BTreeSet::new();
        let mut body = String::new();
        for (key, stored) in self
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(prefix))
        {
            let rest = &key[prefix.len()..];
            if let Some(at) = rest.find('/').filter(|_| !delimiter.is_empty()) {
                folders.insert(format!("{prefix}{}", &rest[..=at]));
                continue;
            }
            body.push_str(&format!(
                "<Contents><Key>{}</Key><Size>{}</Size><ETag>{}</ETag><LastModified>{}</LastModified></Contents>",
                escape(key),
                stored.bytes.len(),
                escape(&stored.tag),
                date::document(stored.modified)
            ));
        }
        for folder in folders {
            let folder = escape(&folder);
            body.push_str(&format!(
                "<CommonPrefixes><Prefix>{folder}</Prefix></CommonPrefixes>"
            ));
        }
        let body =
            format!("<ListBucketResult><IsTruncated>false</IsTruncated>{body}</ListBucketResult>");
        Answer::new(200, body)
    }

    fn begin(&mut self, request: &Request) -> Answer {
        self.count += 1;
        let id = format!("upload-{}", self.count);
        let pending = Pending {
            key: request.key.clone(),
            parts: BTreeMap::new(),
            begun: SystemTime::now(),
        };
        self.uploads.insert(id.clone(), pending);
        let body = format!(
            "<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"
        );
        Answer::new(200, body)
    }

    fn put_part(&mut self, request: &Request) -> Answer {
        let Some(upload) = self.uploads.get_mut(&request.query["uploadId"]) else {
            return Answer::refusal(404, "NoSuchUpload");
        };
        let number = request
            .query
            .get("partNumber")
            .and_then(|number| number.parse().ok());
        let number: u32 = number.unwrap_or(0);
        upload.parts.insert(number, request.body.clone());
        Answer::new(200, "").with("ETag", format!("\"part-{number}\""))
    }

    fn complete(&mut self, request: &Request) -> Answer {
        let id = request.query.get("uploadId").map_or("", String::as_str);
        let Some(upload) = self.uploads.remove(id) else {
            return Answer::refusal(404, "NoSuchUpload");
        };
        let bytes = upload.parts.into_values().collect::<Vec<_>>().concat();
        self.put(request, bytes);
        let tag = &self.objects[&request.key].tag;
        let body = format!(
            "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
            escape(tag)
        );
        Answer::new(200, body)
    }

    fn list_uploads(&self, request: &Request) -> Answer {
        let prefix = request.query.get("prefix").map_or("", String::as_str);
        let mut body = String::new();
        for (id, upload) in self
            .uploads
            .iter()
            .filter(|(_, upload)| upload.key.starts_with(prefix))
        {
            body.push_str(&format!(
                "<Upload><Key>{}</Key><UploadId>{id}</UploadId><Initiated>{}</Initiated></Upload>",
                escape(&upload.key),
                date::document(upload.begun)
            ));
        }
        let body = format!(
            "<ListMultipartUploadsResult><Bucket>bucket</Bucket>{body}<IsTruncated>false</IsTruncated></ListMultipartUploadsResult>"
        );
        Answer::new(200, body)
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
