//! The uploads of a bucket that nobody has finished: the one request of S3 that the client does not make.

use super::address::client_options;
use super::bucket::Uploads;
use crate::Upload;
use chrono::DateTime;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::Method;
use object_store::Error as Fault;
use object_store::aws::AmazonS3;
use object_store::client::{HttpClient, HttpConnector, HttpRequestBody, ReqwestConnector};
use object_store::path::Path;
use object_store::signer::{SignedUrlOptions, Signer};
use serde::Deserialize;
use std::time::Duration;

/// How long the signature of a request holds.
const SIGNED_FOR: Duration = Duration::from_secs(60);
/// A service that never comes to an end is not listened to for ever. A page has a thousand.
const MAX_PAGES: usize = 1000;

/// Lists unfinished uploads, signed by the client of the bucket.
pub(super) struct S3Uploads {
    signer: AmazonS3,
    http: HttpClient,
}

/// A part of the list.
pub(crate) struct Page {
    pub(crate) uploads: Vec<Upload>,
    /// Where the next one begins, if there is one: the last key and upload of this one.
    next: Option<(String, String)>,
}

/// `ListMultipartUploadsResult`, as far as it matters here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    #[serde(default, rename = "Upload")]
    uploads: Vec<Listed>,
    #[serde(default)]
    is_truncated: bool,
    next_key_marker: Option<String>,
    next_upload_id_marker: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    key: String,
    upload_id: String,
    initiated: String,
}

impl S3Uploads {
    pub(super) fn new(signer: AmazonS3, is_plain: bool) -> Result<Self, Fault> {
        let options = client_options().with_allow_http(is_plain);
        let http = ReqwestConnector::default().connect(&options)?;
        Ok(Self { signer, http })
    }

    async fn page(&self, folder: &str, after: Option<(String, String)>) -> Result<Page, Fault> {
        let mut query = vec![("uploads".to_owned(), String::new())];
        if !folder.is_empty() {
            query.push(("prefix".to_owned(), format!("{folder}/")));
        }
        if let Some((key, upload)) = after {
            query.push(("key-marker".to_owned(), key));
            query.push(("upload-id-marker".to_owned(), upload));
        }
        let options = SignedUrlOptions::new().with_query(query);
        let root = Path::default();
        let url = self
            .signer
            .signed_url_opts(Method::GET, &root, SIGNED_FOR, &options);
        let request = http::Request::builder().uri(url.await?.as_str());
        let request = request.body(HttpRequestBody::empty()).map_err(unclear)?;
        let answer = self.http.execute(request).await.map_err(unclear)?;
        let status = answer.status();
        let body = answer.into_body().bytes().await.map_err(unclear)?;
        let body = String::from_utf8_lossy(&body);
        match status.is_success() {
            true => Page::parse(&body),
            false => Err(unclear(format!("non-2xx status code: {status}: {body}"))),
        }
    }
}

impl Uploads for S3Uploads {
    fn pending<'a>(&'a self, folder: &'a str) -> BoxFuture<'a, Result<Vec<Upload>, Fault>> {
        async move {
            let mut found = Vec::new();
            let mut after = None;
            for _ in 0..MAX_PAGES {
                let page = self.page(folder, after.take()).await?;
                found.extend(page.uploads);
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            Ok(found)
        }
        .boxed()
    }
}

impl Page {
    /// Reads a service's answer.
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let answer: Answer = quick_xml::de::from_str(text).map_err(unclear)?;
        let uploads = answer.uploads.into_iter().map(Listed::understood);
        let upload = answer.next_upload_id_marker.unwrap_or_default();
        let next = answer.next_key_marker.map(|key| (key, upload));
        Ok(Self {
            uploads: uploads.collect::<Result<_, _>>()?,
            next: next.filter(|_| answer.is_truncated),
        })
    }
}

impl Listed {
    fn understood(self) -> Result<Upload, Fault> {
        let begun = DateTime::parse_from_rfc3339(&self.initiated).map_err(unclear)?;
        Ok(Upload {
            key: self.key,
            id: self.upload_id,
            begun: begun.into(),
        })
    }
}

fn unclear(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Fault {
    Fault::Generic {
        store: "S3",
        source: source.into(),
    }
}
