//! Where a rank stands, with whom, and whether the settings allow it.

use crate::Error;
use crate::settings::{Parallel, Settings};
use cairn_collectives::{Communicator, along};
use cairn_sharding::Mesh;
use std::fmt;
use std::sync::Arc;

/// The axes a mesh may have.
const AXES: [&str; 3] = ["dp", "pp", "tp"];

/// Something that cannot be, and what could be instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.what, self.hint)
    }
}

/// The size of an axis of the mesh; 1 if it has none of that name.
pub fn axis_size(mesh: &Mesh, name: &str) -> usize {
    let axis = mesh.axes().iter().find(|axis| axis.name == name);
    axis.map_or(1, |axis| axis.size)
}

/// All that is wrong with running a model of `blocks` blocks on `ranks` ranks with these settings.
pub fn problems(settings: &Settings, ranks: usize, blocks: usize) -> Vec<Problem> {
    let mut found = Found::default();
    found.mesh(&settings.parallel.mesh, ranks);
    found.numbers(settings);
    found.batch(settings);
    found.pipeline(&settings.parallel, blocks);
    found.0
}

#[derive(Default)]
struct Found(Vec<Problem>);

impl Found {
    fn add(&mut self, wrong: bool, what: impl Into<String>, hint: impl Into<String>) {
        if wrong {
            let (what, hint) = (what.into(), hint.into());
            self.0.push(Problem { what, hint });
        }
    }

    fn mesh(&mut self, mesh: &Mesh, ranks: usize) {
        for axis in mesh.axes() {
            self.add(
                !AXES.contains(&axis.name.as_str()),
                format!("the mesh has an axis `{}`", axis.name),
                "the axes are `dp`, `pp` and `tp`",
            );
        }
        let size = mesh.size();
        let others = axis_size(mesh, "pp") * axis_size(mesh, "tp");
        self.add(
            size != ranks,
            format!("the mesh `{mesh}` has {size} ranks, but there are {ranks}"),
            match ranks % others {
                0 => format!("`dp={}` would use all of them", ranks / others),
                _ => format!("start {size} ranks"),
            },
        );
        self.add(
            size == ranks && mesh.max_rank() + 1 != size,
            format!("the mesh `{mesh}` leaves out ranks"),
            "number its ranks from 0",
        );
    }

    fn numbers(&mut self, settings: &Settings) {
        let (parallel, rate) = (&settings.parallel, &settings.learning_rate);
        self.add(
            parallel.zero > 3,
            format!("`zero` is {}", parallel.zero),
            "it is 0, 1 (optimizer), 2 (and gradients) or 3 (and parameters)",
        );
        let counts = [
            ("batch", settings.batch),
            ("tokens", settings.tokens.unwrap_or(1)),
            ("chunks", parallel.chunks),
            ("micro_batches", parallel.micro_batches),
        ];
        for (name, value) in counts {
            self.add(value == 0, format!("`{name}` is 0"), "it is at least 1");
        }
        for (name, rate) in [("peak", rate.peak), ("end", rate.end)] {
            self.add(
                !rate.is_finite() || rate < 0.0,
                format!("the learning rate's `{name}` is {rate}"),
                "it is a number that is not negative",
            );
        }
        self.add(
            settings
                .clip
                .is_some_and(|clip| clip.is_nan() || clip <= 0.0),
            format!("`clip` is {}", settings.clip.unwrap_or_default()),
            "it is greater than 0, or left out",
        );
    }

    fn batch(&mut self, settings: &Settings) {
        let (batch, micro_batches) = (settings.batch, settings.parallel.micro_batches);
        let dp = axis_size(&settings.parallel.mesh, "dp");
        if settings.tokens.is_some() {
            // Sequences that do not go into equal parts go into unequal ones; some may be empty, but not in every step.
            let parts = dp.checked_mul(micro_batches);
            self.add(
                parts.is_none_or(|parts| parts > batch),
                format!("{batch} sequences at most cannot be cut in {dp} (`dp`) × {micro_batches} (`micro_batches`) parts"),
                "use fewer parts, or larger steps",
            );
            return;
        }
        let Some(parts) = dp.checked_mul(micro_batches).filter(|parts| *parts > 0) else {
            return;
        };
        let down = (batch / parts).max(1) * parts;
        let up = batch.checked_next_multiple_of(parts).unwrap_or(down);
        self.add(
            !batch.is_multiple_of(parts),
            format!("a batch of {batch} sequences cannot be cut in {dp} (`dp`) × {micro_batches} (`micro_batches`) equal parts"),
            match up == down {
                true => format!("a batch of {up} can"),
                false => format!("a batch of {down} or {up} can"),
            },
        );
    }

    fn pipeline(&mut self, parallel: &Parallel, blocks: usize) {
        let pp = axis_size(&parallel.mesh, "pp");
        let parts = pp.saturating_mul(parallel.chunks);
        self.add(
            pp == 1 && parallel.chunks > 1,
            format!("there are {} chunks, but no pipeline", parallel.chunks),
            "use `chunks = 1`, or a mesh with an axis `pp`",
        );
        self.add(
            parts > blocks,
            format!("a model of {blocks} blocks cannot be cut in {parts} parts"),
            format!("use at most {blocks} of `pp` × `chunks`: the embedding, each layer and the head are a block"),
        );
        let Some(counts) = &parallel.blocks else {
            return;
        };
        let total = counts
            .iter()
            .fold(0_usize, |sum, count| sum.saturating_add(*count));
        self.add(
            counts.len() != parts,
            format!("`blocks` names {} parts", counts.len()),
            format!("there are {parts}: `pp` × `chunks`"),
        );
        self.add(
            total != blocks,
            format!("`blocks` names {total} blocks"),
            format!("the model has {blocks}: the embedding, each layer and the head"),
        );
    }
}

/// Where a rank stands in the mesh, and the groups it belongs to.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The mesh.
    pub mesh: Mesh,
    /// All ranks.
    pub world: Arc<dyn Communicator>,
    /// Those with the same part of the model and other data.
    pub dp: Arc<dyn Communicator>,
    /// Those with the other parts of the pipeline and the same data.
    pub pp: Arc<dyn Communicator>,
    /// Those with which blocks are shared.
    pub tp: Arc<dyn Communicator>,
    /// The first and the last stage, which may hold the same parameter; every other rank is alone.
    pub ends: Arc<dyn Communicator>,
}

impl Layout {
    /// The place of this rank of `world` in `mesh`.
    ///
    /// # Collective
    /// # Errors
    /// If the mesh has more ranks than the world, or somebody does not call.
    pub fn new(mesh: &Mesh, world: Arc<dyn Communicator>) -> Result<Self, Error> {
        let group = |axis: &str| match mesh.axis(axis) {
            Ok(_) => along(world.as_ref(), mesh, axis),
            Err(_) => world.split(world.rank() as u64, 0),
        };
        let (dp, pp, tp) = (group("dp")?, group("pp")?, group("tp")?);
        let last = pp.size() - 1;
        let color = match pp.rank() {
            stage if stage == 0 || stage == last => 0,
            stage => stage,
        };
        Ok(Self {
            mesh: mesh.clone(),
            ends: pp.split(color as u64, 0)?,
            world,
            dp,
            pp,
            tp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_collectives::threads;

    fn settings(mesh: &str) -> Settings {
        let mut settings = Settings::default();
        settings.parallel.mesh = mesh.parse().unwrap();
        settings
    }

    #[test]
    fn what_works_has_no_problems() {
        assert_eq!(problems(&settings("dp=2,pp=2,tp=2"), 8, 4), []);
        assert_eq!(problems(&settings("single"), 1, 1), []);
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let mut settings = settings("dp=3,ep=2");
        settings.parallel.zero = 4;
        settings.parallel.chunks = 9;
        settings.batch = 7;
        let found = problems(&settings, 4, 5);
        let whats: Vec<&str> = found.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(
            whats,
            [
                "the mesh has an axis `ep`",
                "the mesh `dp=3,ep=2` has 6 ranks, but there are 4",
                "`zero` is 4",
                "a batch of 7 sequences cannot be cut in 3 (`dp`) × 1 (`micro_batches`) equal parts",
                "there are 9 chunks, but no pipeline",
                "a model of 5 blocks cannot be cut in 9 parts",
            ]
        );
        assert_eq!(found[3].hint, "a batch of 6 or 9 can");
    }

    #[test]
    fn sizes_beyond_all_numbers_are_problems_too() {
        let mut settings = settings("pp=2");
        settings.parallel.micro_batches = usize::MAX;
        settings.parallel.chunks = usize::MAX;
        settings.parallel.blocks = Some(vec![usize::MAX, 2]);
        assert_eq!(problems(&settings, 2, 5).len(), 4);
    }

    #[test]
    fn groups_follow_the_mesh_whatever_the_order_of_its_axes() {
        let mesh: Mesh = "tp=2,pp=3".parse().unwrap();
        let places = threads::run(6, threads::Options::default(), |world| {
            let layout = Layout::new(&mesh, world)?;
            let ranks = |group: &Arc<dyn Communicator>| group.world_ranks().to_vec();
            Ok::<_, Error>((
                ranks(&layout.dp),
                ranks(&layout.pp),
                ranks(&layout.tp),
                ranks(&layout.ends),
            ))
        });
        let places = places.expect("all come along");
        assert_eq!(places[4], (vec![4], vec![3, 4, 5], vec![1, 4], vec![4]));
        assert_eq!(places[5].3, [3, 5]);
    }
}
