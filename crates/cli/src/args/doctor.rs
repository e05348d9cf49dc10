//! Arguments of `cairn doctor`.

use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Objects of its own, about 32 MiB, are written to a folder `doctor-…` there, read, and removed again.

Examples:
  cairn doctor s3://bucket/runs
  cairn doctor /mnt/shared --json")]
pub(crate) struct Doctor {
    /// A folder, or a bucket and what lies in it: /data/runs, s3://bucket/runs, gs://…, az://…
    #[arg(value_name = "URL")]
    pub(crate) url: String,
}
