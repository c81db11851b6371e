//! The shipped tokenizer on the text of the evaluation prompts.

#![cfg(feature = "pair")]

mod pair_files;

use paceline::engine::pair::prompts::eval_prompts;
use paceline::engine::pair::tokenizer::{StreamDecoder, Tokenizer};
use pair_files::{PAIR, file};

/// Ids below are specials and never come out of text.
const FIRST_PIECE: u32 = 8;
/// A prompt is cut anywhere, so the longest match may differ near its end.
const CUT: usize = 32;

#[test]
fn the_text_of_every_prompt_encodes_to_its_tokens() {
    let tokenizer = Tokenizer::from_json(&file("tokenizer.json")).expect("it loads");
    let prompts = eval_prompts(&file("eval_prompts.json.gz")).expect("prompts load");
    assert_eq!(prompts.len(), 156);
    let mut compared = 0;
    for prompt in &prompts {
        assert_eq!(prompt.tokens.len(), prompt.length);
        assert!(prompt.tokens.iter().all(|token| (*token as usize) < PAIR.config.vocab));
        for text in prompt.tokens.split(|token| *token < FIRST_PIECE) {
            let encoded = tokenizer.encode(&tokenizer.decode(text));
            let sure = text.len().saturating_sub(CUT);
            // A prompt may begin within a character, which decodes to a replacement character.
            if !tokenizer.decode(text).contains('\u{FFFD}') {
                assert_eq!(encoded[..sure], text[..sure], "{}/{}", prompt.kind, prompt.length);
                compared += sure;
            }
        }
    }
    assert!(compared > 300_000, "{compared} tokens compared");
}

#[test]
fn streamed_text_is_the_decoded_text() {
    let tokenizer = Tokenizer::from_json(&file("tokenizer.json")).expect("it loads");
    let tokens = tokenizer.encode("fn main() { println!(\"déjà vu 🦀\"); }\n");
    let mut decoder = StreamDecoder::default();
    let mut text: String = tokens.iter().map(|token| decoder.push(&tokenizer, *token)).collect();
    text.push_str(&decoder.finish());
    assert_eq!(text, tokenizer.decode(&tokens));
}
