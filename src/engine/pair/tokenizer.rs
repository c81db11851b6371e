//! The pair's tokenizer: at each byte, the longest piece that matches.

use std::collections::HashMap;

use serde::Deserialize;

use super::error::PairError;

/// Encodes and decodes text; any bytes can be encoded, since every single byte is a piece.
#[derive(Debug)]
pub struct Tokenizer {
    /// Bytes of each id; the name of the special for specials.
    pieces: Vec<Vec<u8>>,
    /// Edges of the trie of pieces: from a node and a byte to a node.
    edges: HashMap<(u32, u8), u32>,
    /// Id of the piece that ends at a node.
    ends: Vec<Option<u32>>,
}

#[derive(Deserialize)]
struct TokenizerFile {
    kind: String,
    vocab_size: usize,
    specials: Vec<String>,
    pieces_hex: Vec<String>,
}

impl Tokenizer {
    /// Reads `tokenizer.json`.
    ///
    /// # Errors
    /// When the text is not a tokenizer of the kind `greedy-longest-match-bytes`, or a single byte
    /// has no piece.
    pub fn from_json(bytes: &[u8]) -> Result<Self, PairError> {
        let file: TokenizerFile = serde_json::from_slice(bytes)
            .map_err(|source| PairError::Json { file: "tokenizer.json".into(), source })?;
        let invalid = |reason: String| PairError::Tokenizer { reason };
        if file.kind != "greedy-longest-match-bytes" {
            return Err(invalid(format!("unknown kind {}", file.kind)));
        }
        if file.pieces_hex.len() != file.vocab_size {
            return Err(invalid(format!("{} pieces", file.pieces_hex.len())));
        }
        let mut tokenizer = Self { pieces: Vec::new(), edges: HashMap::new(), ends: vec![None] };
        for (id, hex) in file.pieces_hex.iter().enumerate() {
            let piece =
                bytes_of(hex).ok_or_else(|| invalid(format!("piece {id} is not hexadecimal")))?;
            if let Some(name) = file.specials.get(id) {
                tokenizer.pieces.push(name.clone().into_bytes());
            } else {
                tokenizer.add(id as u32, &piece);
                tokenizer.pieces.push(piece);
            }
        }
        match (0..=255).find(|&byte| tokenizer.longest_match(&[byte]).is_none()) {
            Some(byte) => Err(invalid(format!("byte {byte} has no piece"))),
            None => Ok(tokenizer),
        }
    }

    /// Tokens of a text. The names of specials in it are ordinary text.
    #[must_use]
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut rest = text.as_bytes();
        let mut tokens = Vec::new();
        while let Some((token, length)) = self.longest_match(rest) {
            tokens.push(token);
            rest = &rest[length..];
        }
        tokens
    }

    /// The text of tokens; bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.piece(*token)).copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Bytes of one token; empty for an id outside the vocabulary.
    #[must_use]
    pub fn piece(&self, token: u32) -> &[u8] {
        self.pieces.get(token as usize).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, id: u32, piece: &[u8]) {
        let mut node = 0;
        for &byte in piece {
            let next = self.ends.len() as u32;
            node = *self.edges.entry((node, byte)).or_insert(next);
            if node == next {
                self.ends.push(None);
            }
        }
        if node != 0 {
            self.ends[node as usize] = Some(id);
        }
    }

    fn longest_match(&self, bytes: &[u8]) -> Option<(u32, usize)> {
        let (mut node, mut best) = (0, None);
        for (index, &byte) in bytes.iter().enumerate() {
            match self.edges.get(&(node, byte)) {
                Some(&next) => node = next,
                None => break,
            }
            if let Some(id) = self.ends[node as usize] {
                best = Some((id, index + 1));
            }
        }
        best
    }
}

/// Turns a stream of tokens into text, holding back the bytes of an unfinished character.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    held: Vec<u8>,
}

impl StreamDecoder {
    /// The text that is certain once `token` has arrived; often all of it, at times none.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        self.held.extend_from_slice(tokenizer.piece(token));
        let unfinished = match self.held.utf8_chunks().last() {
            Some(chunk) if may_continue(chunk.invalid()) => chunk.invalid().len(),
            _ => 0,
        };
        let rest = self.held.split_off(self.held.len() - unfinished);
        let text = String::from_utf8_lossy(&self.held).into_owned();
        self.held = rest;
        text
    }

    /// What is left when the stream ends.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// Whether bytes at the end of a text are the start of a character.
fn may_continue(invalid: &[u8]) -> bool {
    std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none())
}

fn bytes_of(hex: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
    if rest.is_empty() { bytes } else { None }
}

#[cfg(test)]
mod tests {
    use super::{StreamDecoder, Tokenizer};

    /// Two specials, every byte, then some longer pieces from id 258 on.
    fn tokenizer(longer: &[&str]) -> Tokenizer {
        let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let mut pieces = vec![String::new(); 2];
        pieces.extend((0..=255u8).map(|byte| hex(&[byte])));
        pieces.extend(longer.iter().map(|piece| hex(piece.as_bytes())));
        let json = serde_json::json!({
            "kind": "greedy-longest-match-bytes",
            "vocab_size": pieces.len(),
            "specials": ["<|doc|>", "<|mask|>"],
            "pieces_hex": pieces,
        });
        Tokenizer::from_json(json.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_longest_piece_wins_even_when_its_prefixes_are_no_pieces() {
        let tokenizer = tokenizer(&["ab", "abcde"]);
        assert_eq!(tokenizer.encode("abcde"), [259]);
        assert_eq!(tokenizer.encode("abcd"), [258, 2 + 99, 2 + 100]);
        assert!(tokenizer.encode("").is_empty());
    }

    #[test]
    fn any_text_survives_a_round_trip() {
        let tokenizer = tokenizer(&["é", " the"]);
        for text in ["over the hill", "café 日本 🦀", "<|doc|>"] {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text)), text);
        }
        assert_eq!(tokenizer.decode(&[0, 2 + 104]), "<|doc|>h");
    }

    #[test]
    fn a_stream_never_shows_half_a_character() {
        let tokenizer = tokenizer(&[]);
        let mut decoder = StreamDecoder::default();
        let shown: Vec<String> =
            "a🦀b".bytes().map(|byte| decoder.push(&tokenizer, 2 + u32::from(byte))).collect();
        assert_eq!(shown, ["a", "", "", "", "🦀", "b"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced_once_that_is_certain() {
        let tokenizer = tokenizer(&[]);
        let mut decoder = StreamDecoder::default();
        let mut push = |byte: u32| decoder.push(&tokenizer, 2 + byte);
        assert_eq!(push(0xFF), "\u{FFFD}");
        assert_eq!(push(0xE6), "");
        assert_eq!(push(0x61), "\u{FFFD}a");
        assert_eq!(push(0xE6), "");
        assert_eq!(decoder.finish(), "\u{FFFD}");
    }

    #[test]
    fn a_file_that_lacks_a_byte_is_refused() {
        let json = r#"{"kind":"greedy-longest-match-bytes","vocab_size":1,"specials":[],"pieces_hex":["00"]}"#;
        let error = Tokenizer::from_json(json.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), "tokenizer.json: byte 1 has no piece");
    }
}
