//! Azurite, Microsoft's emulator of Azure Blob Storage.

use super::npm;
use super::server::{BUCKET, Running, folder, free_port, spawn, wait_for};
use crate::Result;
use crate::workspace::{Workspace, output};

const PACKAGE: &str = "azurite@3.35.0";
/// The account that every emulator has, as Microsoft documents it.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

pub(super) fn start(workspace: &Workspace) -> Result<Running> {
    let program = npm(workspace, PACKAGE, "azurite-blob")?;
    let (folder, port) = (folder(workspace, "azurite")?, free_port()?);
    let mut command = workspace.command(&program.to_string_lossy());
    command
        .args(["--silent", "--disableTelemetry", "--skipApiVersionCheck"])
        .args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()])
        .arg("--location")
        .arg(&folder);
    let process = spawn(command, &folder)?;
    let endpoint = format!("http://127.0.0.1:{port}/{ACCOUNT}");
    let settings = [
        ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT),
        ("AZURE_STORAGE_ACCOUNT_KEY", KEY),
        ("AZURE_STORAGE_ENDPOINT", endpoint.as_str()),
        ("AZURE_ALLOW_HTTP", "true"),
    ];
    let running = Running::new(folder, vec![process], &format!("az://{BUCKET}"), &settings);
    wait_for(port)?;
    create_container(workspace, &endpoint)?;
    Ok(running)
}

/// Makes the container, by the one request of this module that has to be signed.
fn create_container(workspace: &Workspace, endpoint: &str) -> Result {
    let mut node = workspace.command("node");
    node.args(["--eval", CREATE, endpoint, ACCOUNT, KEY, BUCKET]);
    output(node).map(drop)
}

const CREATE: &str = r#"
const [endpoint, account, key, bucket] = process.argv.slice(1);
const crypto = require("crypto");
const headers = { "x-ms-date": new Date().toUTCString(), "x-ms-version": "2021-12-02" };
const named = Object.keys(headers).sort().map((name) => `${name}:${headers[name]}\n`).join("");
const place = `/${account}/${account}/${bucket}\nrestype:container`;
const signed = "PUT" + "\n".repeat(12) + named + place;
const signature = crypto.createHmac("sha256", Buffer.from(key, "base64")).update(signed).digest("base64");
headers.Authorization = `SharedKey ${account}:${signature}`;
fetch(`${endpoint}/${bucket}?restype=container`, { method: "PUT", headers }).then(async (answer) => {
  if (answer.status !== 201) { console.error(answer.status, await answer.text()); process.exit(1); }
});
"#;
