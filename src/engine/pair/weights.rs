//! Weights of target and drafter: bf16 on disk, f32 in memory, laid out as the products read them.

use std::sync::Arc;

use half::bf16;
use safetensors::{Dtype, SafeTensors};

use super::config::{LayerShape, PairConfig};
use super::error::PairError;

/// One decoder layer. Matrices are `[inputs, outputs]`.
#[derive(Debug)]
pub(super) struct LayerWeights {
    pub attention_norm: Vec<f32>,
    pub mlp_norm: Vec<f32>,
    pub query_norm: Vec<f32>,
    pub key_norm: Vec<f32>,
    /// Query, key and value projections side by side.
    pub qkv: Vec<f32>,
    pub output: Vec<f32>,
    /// Gate and up projections side by side.
    pub gate_up: Vec<f32>,
    pub down: Vec<f32>,
}

/// The token table, shared by target and drafter as embedding and as head.
#[derive(Debug)]
pub(super) struct Vocabulary {
    /// `[vocab, width]`.
    pub embedding: Vec<f32>,
    /// The same values, `[width, vocab]`.
    pub head: Vec<f32>,
}

/// All of `target.safetensors`.
#[derive(Debug)]
pub(super) struct TargetWeights {
    pub vocabulary: Arc<Vocabulary>,
    pub layers: Vec<LayerWeights>,
    pub norm: Vec<f32>,
}

/// All of `drafter.safetensors`.
#[derive(Debug)]
pub(super) struct DrafterWeights {
    /// Captured states to context, `[captures * width, width]`.
    pub fuse: Vec<f32>,
    pub context_norm: Vec<f32>,
    /// Context to K and V of every layer: `[width, layers * 2 * kv_dim]`, K before V, layer by layer.
    pub context_kv: Vec<f32>,
    pub layers: Vec<LayerWeights>,
    pub norm: Vec<f32>,
    /// `[vocab, rank]`.
    pub markov_in: Vec<f32>,
    /// `[rank, vocab]`.
    pub markov_out: Vec<f32>,
    /// Over the hidden state, then the Markov embedding of the token before.
    pub confidence: Vec<f32>,
    pub confidence_bias: f32,
}

impl TargetWeights {
    pub(super) fn from_bytes(bytes: &[u8], config: &PairConfig) -> Result<Self, PairError> {
        let file = TensorFile::open("target.safetensors", bytes)?;
        let (vocab, width) = (config.vocab, config.width);
        let embedding = file.values("embed.weight", &[vocab, width])?;
        let head = transposed(&embedding, vocab, width);
        Ok(Self {
            vocabulary: Arc::new(Vocabulary { embedding, head }),
            layers: (0..config.layers)
                .map(|layer| LayerWeights::load(&file, layer, &config.target_shape()))
                .collect::<Result<_, _>>()?,
            norm: file.values("norm.weight", &[width])?,
        })
    }
}

impl DrafterWeights {
    pub(super) fn from_bytes(bytes: &[u8], config: &PairConfig) -> Result<Self, PairError> {
        let file = TensorFile::open("drafter.safetensors", bytes)?;
        let (vocab, width, rank) = (config.vocab, config.width, config.markov_rank);
        let shape = config.draft_shape();
        let names: Vec<String> = (0..config.d_layers)
            .flat_map(|layer| ["k", "v"].map(|name| format!("layers.{layer}.{name}.weight")))
            .collect();
        let projections: Vec<(&str, usize)> =
            names.iter().map(|name| (name.as_str(), shape.kv_dim())).collect();
        Ok(Self {
            fuse: file.side_by_side(&[("fc.weight", width)], config.capture_dim())?,
            context_norm: file.values("hidden_norm.weight", &[width])?,
            context_kv: file.side_by_side(&projections, width)?,
            layers: (0..config.d_layers)
                .map(|layer| LayerWeights::load(&file, layer, &shape))
                .collect::<Result<_, _>>()?,
            norm: file.values("norm.weight", &[width])?,
            markov_in: file.values("markov.w1", &[vocab, rank])?,
            markov_out: file.side_by_side(&[("markov.w2", vocab)], rank)?,
            confidence: file.values("conf.weight", &[1, width + rank])?,
            confidence_bias: file.values("conf.bias", &[1])?[0],
        })
    }
}

impl LayerWeights {
    fn load(file: &TensorFile<'_>, layer: usize, shape: &LayerShape) -> Result<Self, PairError> {
        let name = |part: &str| format!("layers.{layer}.{part}.weight");
        let (q, k, v) = (name("q"), name("k"), name("v"));
        let (query, kv, width) = (shape.query_dim(), shape.kv_dim(), shape.width);
        Ok(Self {
            attention_norm: file.values(&name("ln1"), &[width])?,
            mlp_norm: file.values(&name("ln2"), &[width])?,
            query_norm: file.values(&name("qn"), &[shape.head_dim])?,
            key_norm: file.values(&name("kn"), &[shape.head_dim])?,
            qkv: file.side_by_side(&[(&q, query), (&k, kv), (&v, kv)], width)?,
            output: file.side_by_side(&[(&name("o"), width)], query)?,
            gate_up: file
                .side_by_side(&[(&name("gate"), shape.ff), (&name("up"), shape.ff)], width)?,
            down: file.side_by_side(&[(&name("down"), width)], shape.ff)?,
        })
    }
}

struct TensorFile<'a> {
    name: &'static str,
    tensors: SafeTensors<'a>,
}

impl<'a> TensorFile<'a> {
    fn open(name: &'static str, bytes: &'a [u8]) -> Result<Self, PairError> {
        let tensors = SafeTensors::deserialize(bytes).map_err(|source| PairError::Tensor {
            file: name,
            tensor: "*".into(),
            source,
        })?;
        Ok(Self { name, tensors })
    }

    fn values(&self, tensor: &str, expected: &[usize]) -> Result<Vec<f32>, PairError> {
        let view = self.tensors.tensor(tensor).map_err(|source| PairError::Tensor {
            file: self.name,
            tensor: tensor.into(),
            source,
        })?;
        if view.dtype() != Dtype::BF16 || view.shape() != expected {
            return Err(PairError::Shape {
                file: self.name,
                tensor: tensor.into(),
                expected: expected.to_vec(),
                found: format!("{:?} {:?}", view.dtype(), view.shape()),
            });
        }
        let (pairs, _) = view.data().as_chunks::<2>();
        Ok(pairs.iter().map(|&pair| bf16::from_le_bytes(pair).to_f32()).collect())
    }

    /// `[outputs, inputs]` tensors as one `[inputs, sum of outputs]` matrix.
    fn side_by_side(
        &self,
        tensors: &[(&str, usize)],
        inputs: usize,
    ) -> Result<Vec<f32>, PairError> {
        let columns: usize = tensors.iter().map(|(_, outputs)| outputs).sum();
        let mut matrix = vec![0.0; inputs * columns];
        let mut column = 0;
        for &(name, outputs) in tensors {
            let values = self.values(name, &[outputs, inputs])?;
            for weights in values.chunks_exact(inputs) {
                for (input, weight) in weights.iter().enumerate() {
                    matrix[input * columns + column] = *weight;
                }
                column += 1;
            }
        }
        Ok(matrix)
    }
}

fn transposed(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|c| (0..rows).map(move |r| values[r * columns + c])).collect()
}

#[cfg(test)]
mod tests {
    use super::{TensorFile, transposed};

    fn file() -> Vec<u8> {
        let data: Vec<u8> = [1.0f32, 2.0, 3.0, 4.0]
            .iter()
            .flat_map(|v| half::bf16::from_f32(*v).to_le_bytes())
            .collect();
        let view =
            safetensors::tensor::TensorView::new(safetensors::Dtype::BF16, vec![2, 2], &data)
                .unwrap();
        safetensors::serialize([("a", view)], None).unwrap()
    }

    #[test]
    fn matrices_are_packed_by_input() {
        let bytes = file();
        let file = TensorFile::open("target.safetensors", &bytes).unwrap();
        let packed = file.side_by_side(&[("a", 2), ("a", 2)], 2).unwrap();
        assert_eq!(packed, [1.0, 3.0, 1.0, 3.0, 2.0, 4.0, 2.0, 4.0]);
        assert_eq!(
            transposed(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3),
            [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]
        );
    }

    #[test]
    fn an_error_names_the_file_and_the_tensor() {
        let bytes = file();
        let file = TensorFile::open("target.safetensors", &bytes).unwrap();
        let missing = file.values("b", &[1]).unwrap_err().to_string();
        assert!(missing.starts_with("target.safetensors: tensor b: "), "{missing}");
        let shape = file.values("a", &[4]).unwrap_err().to_string();
        assert_eq!(shape, "target.safetensors: tensor a: expected BF16 [4], found BF16 [2, 2]");
        let header = TensorFile::open("drafter.safetensors", &[0; 4]).err().unwrap().to_string();
        assert!(header.starts_with("drafter.safetensors: tensor *: "), "{header}");
    }
}
