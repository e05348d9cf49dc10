//! What can go wrong with the memory of parameters.

use cairn_tensor::DType;

/// What can go wrong with the memory of parameters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A group of ranks failed.
    #[error(transparent)]
    Collective(#[from] cairn_collectives::Error),
    /// State cannot be saved or loaded.
    #[error(transparent)]
    Checkpoint(#[from] cairn_checkpoint::Error),
    /// What the optimizer remembers cannot be kept in files.
    #[error("what the optimizer remembers cannot be kept in files")]
    Offload(#[source] cairn_store::Error),
    /// A parameter has no place on the mesh.
    #[error("parameter `{name}` has no place on the mesh")]
    Place {
        /// The parameter.
        name: String,
        /// Why.
        source: cairn_sharding::Error,
    },
    /// The mesh is not the one that the groups were made for.
    #[error("the mesh has {actual} ranks along `{axis}`, its group has {expected}")]
    Axis {
        /// The axis.
        axis: &'static str,
        /// The size of the group.
        expected: usize,
        /// The size of the axis.
        actual: usize,
    },
    /// Parameters cannot be stored like this.
    #[error("parameters cannot be stored as `{dtype}`")]
    Type {
        /// The type asked for.
        dtype: DType,
    },
    /// There is no such stage.
    #[error("there is no stage {stage} of sharing out state")]
    Stage {
        /// The number asked for.
        stage: u8,
    },
    /// A parameter that several blocks have in common is not the same for all.
    #[error("the tied parameter `{name}` {reason}")]
    Tied {
        /// The parameter.
        name: String,
        /// What is wrong.
        reason: String,
    },
    /// The gradients of a bucket are still being added to.
    #[error("the gradients of bucket {bucket} were not said to be ready before the step")]
    NotReady {
        /// The bucket.
        bucket: usize,
    },
}

impl Error {
    /// What the reader can do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Collective(error) => error.hint(),
            Self::Checkpoint(error) => error.hint(),
            Self::Offload(error) => error.hint(),
            Self::Place { source, .. } => source.hint(),
            Self::Type { .. } => {
                Some("parameters are `f32`, or `bf16` beside `f32` masters".into())
            }
            Self::Stage { .. } => Some(
                "0 shares out nothing, 1 the optimizer's state, 2 gradients too, 3 parameters too"
                    .into(),
            ),
            Self::NotReady { .. } => {
                Some("call `ready` after the last backward of every bucket".into())
            }
            Self::Axis { .. } | Self::Tied { .. } => None,
        }
    }
}
