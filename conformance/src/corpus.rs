//! The corpus' files as they are written.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use nnhal_hal::HalVersion;
use serde::Deserialize;

/// The format that this reader knows.
const FORMAT: u32 = 1;

/// Why the corpus cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// A file or folder cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is not a file of the conformance corpus: {error}", path.display())]
    Json {
        /// Which.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// A file of another format.
    #[error("{} has format {format}, this program reads format {FORMAT}", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// Its format.
        format: u32,
    },
    /// No corpus at all.
    #[error("{} holds no conformance corpus: it has no .json file in a folder one level down", path.display())]
    Empty {
        /// Where it was looked for.
        path: PathBuf,
    },
}

/// The files of a corpus.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// All files, in the order of their paths.
    pub files: Vec<PathBuf>,
}

impl Corpus {
    /// Finds the files of the corpus in `root`: `<version>/<specification>.json`.
    ///
    /// # Errors
    /// A folder cannot be read, or there is no file.
    pub fn open(root: &Path) -> Result<Corpus, CorpusError> {
        let mut files = Vec::new();
        for version in entries(root)?.into_iter().filter(|path| path.is_dir()) {
            let json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
            files.extend(entries(&version)?.into_iter().filter(json));
        }
        if files.is_empty() {
            return Err(CorpusError::Empty { path: root.into() });
        }
        files.sort();
        Ok(Corpus { files })
    }

    /// Where the corpus is unless someone says otherwise: `$NNHAL_SHARED/conformance`, or
    /// `shared/conformance` beside the checkout that this crate was built in.
    #[must_use]
    pub fn default_root() -> PathBuf {
        let shared = std::env::var_os("NNHAL_SHARED").map(PathBuf::from);
        let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
        shared.unwrap_or_else(beside).join("conformance")
    }
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>, CorpusError> {
    let failed = |error| CorpusError::Io {
        path: folder.into(),
        error,
    };
    std::fs::read_dir(folder)
        .map_err(failed)?
        .map(|entry| entry.map(|entry| entry.path()).map_err(failed))
        .collect()
}

/// One file: the cases of one specification.
#[derive(Clone, Debug, Deserialize)]
pub struct Specification {
    format: u32,
    /// The specification's name, which is also the file's.
    pub spec: String,
    /// The folder: which version's suite it belongs to.
    pub version: String,
    /// Lists of values, shared by all cases.
    pub buffers: Vec<Vec<f64>>,
    /// The cases.
    pub cases: Vec<Case>,
}

impl Specification {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is not of the corpus' format.
    pub fn read(path: &Path) -> Result<Specification, CorpusError> {
        let file = File::open(path).map_err(|error| CorpusError::Io {
            path: path.into(),
            error,
        })?;
        let specification: Specification = serde_json::from_reader(BufReader::with_capacity(1 << 16, file))
            .map_err(|error| CorpusError::Json {
            path: path.into(),
            error,
        })?;
        if specification.format == FORMAT {
            Ok(specification)
        } else {
            Err(CorpusError::Format {
                path: path.into(),
                format: specification.format,
            })
        }
    }
}

/// A procedure that a case goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Suite {
    /// Prepare, execute, compare.
    General,
    /// The same with outputs of unspecified dimensions, and with a buffer that is too small.
    DynamicOutputShape,
    /// The same with signed instead of unsigned bytes.
    Quant8Coupling,
    /// Preparing or executing must fail.
    ExpectFailure,
    /// A WHILE that must be stopped.
    LoopTimeout,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Case {
    /// Unique over the whole corpus.
    pub name: String,
    /// The lowest HAL version that can express the model, if that is checked.
    pub min_version: Option<HalVersion>,
    /// The model's flag `relaxComputationFloat32toFloat16`.
    pub relaxed: bool,
    /// Whether the case must fail.
    pub expect_failure: bool,
    /// Above 0: the outputs are random, and checked by how often each class occurs.
    pub multinomial_tolerance: f64,
    /// The procedures that apply.
    pub suites: Vec<Suite>,
    /// The main graph.
    pub main: Graph,
    /// The graphs that IF and WHILE refer to.
    pub referenced: Vec<Graph>,
}

impl Case {
    /// The main graph, then the referenced ones.
    pub fn graphs(&self) -> impl Iterator<Item = &Graph> {
        std::iter::once(&self.main).chain(&self.referenced)
    }

    /// The names of all operations in the case, each once.
    #[must_use]
    pub fn operations(&self) -> BTreeSet<&str> {
        self.graphs()
            .flat_map(|graph| &graph.operations)
            .map(|operation| operation.op.as_str())
            .collect()
    }
}

/// A graph of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct Graph {
    /// Operand indexes of the inputs.
    pub inputs: Vec<u32>,
    /// Operand indexes of the outputs.
    pub outputs: Vec<u32>,
    /// The operands.
    pub operands: Vec<OperandEntry>,
    /// The operations, in a valid order.
    pub operations: Vec<OperationEntry>,
}

/// An operation of a case.
#[derive(Clone, Debug, Deserialize)]
pub struct OperationEntry {
    /// The HAL's name.
    pub op: String,
    /// Operand indexes.
    pub inputs: Vec<u32>,
    /// Operand indexes.
    pub outputs: Vec<u32>,
}

/// An operand of a case.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OperandEntry {
    /// Informative.
    pub name: String,
    /// The HAL's name.
    #[serde(rename = "type")]
    pub operand_type: String,
    /// As declared; for an output of the main graph also the dimensions that are expected.
    pub dims: Vec<u32>,
    /// Quantisation scale.
    #[serde(default)]
    pub scale: f64,
    /// Quantisation zero point.
    #[serde(default)]
    pub zero_point: i32,
    /// Scales along a dimension.
    pub channel_quant: Option<ChannelQuant>,
    /// Where its value comes from.
    pub lifetime: Lifetime,
    /// On an output: whether its values are not compared.
    #[serde(default)]
    pub ignored: bool,
    /// Index of its values in [`Specification::buffers`].
    pub data: Option<usize>,
    /// Index of a referenced graph.
    pub subgraph: Option<u32>,
}

/// Scales along a dimension.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChannelQuant {
    /// The dimension.
    pub channel_dim: u32,
    /// One for each of its indexes.
    pub scales: Vec<f64>,
}

/// HAL `OperandLifeTime`, as the corpus writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "as in the HAL")]
pub enum Lifetime {
    SubgraphInput,
    SubgraphOutput,
    TemporaryVariable,
    ConstantCopy,
    ConstantReference,
    NoValue,
    Subgraph,
}
