//! Arguments of `cairn train`.

use cairn::sharding::Mesh;
use clap::Args;

#[derive(Debug, Args)]
#[command(after_help = "\
Ranks are threads of this process, or, with MPI built in, processes that `mpirun` started. A run that has checkpoints goes on from the newest good one, on whatever mesh is given now.
A run belongs to one trainer: a second one is refused while the first lives.
An interrupt (Ctrl-C, SIGTERM) ends the run after the step at hand: the step is saved, and the exit code is 0. A second one ends it at once.

Examples:
  cairn train run.toml --dry-run                       what would be trained, by whom, in how much memory
  cairn train run.toml
  cairn train run.toml --mesh dp=2,pp=2,tp=2
  cairn train run.toml --ranks 6                       as many replicas as six ranks make
  cairn train run.toml --set steps=2000 --set learning_rate.peak=1e-3")]
pub(crate) struct Train {
    /// The run, as a TOML file; `docs/guide/training.md` lists its keys
    pub(crate) config: String,
    /// The axes of the mesh, outermost first: dp=2,pp=2,tp=2
    #[arg(long)]
    pub(crate) mesh: Option<Mesh>,
    /// How many ranks there are: the mesh gets as many replicas (`dp`) as they make
    #[arg(long, value_name = "N")]
    pub(crate) ranks: Option<usize>,
    /// Put a value in the place of one of the config; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Take the run from a trainer that may still be at it; that one ends at its next step
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Show who would hold what, and train nothing
    #[arg(long = "dry-run", visible_alias = "plan")]
    pub(crate) dry_run: bool,
}

impl Train {
    /// All that takes the place of what the file says.
    pub(crate) fn settings(&self) -> Vec<String> {
        let mesh = self.mesh.as_ref();
        let mesh = mesh.map(|mesh| format!("parallel.mesh=\"{mesh}\""));
        let ranks = self.ranks.map(|ranks| format!("parallel.ranks={ranks}"));
        let given = self.set.iter().cloned();
        given.chain(mesh).chain(ranks).collect()
    }
}
