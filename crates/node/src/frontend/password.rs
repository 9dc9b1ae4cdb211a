//! What a client must know to be let in: the password of `AUTH`, the token of HTTP.

use std::fmt;
use std::hint::black_box;

/// Never shown, and compared in a time that says nothing about it.
#[derive(Clone)]
pub struct Password(Box<[u8]>);

impl Password {
    /// `None` for the empty password, which would let everybody in.
    pub fn new(secret: impl Into<Vec<u8>>) -> Option<Password> {
        let secret = secret.into();
        (!secret.is_empty()).then(|| Password(secret.into()))
    }

    pub fn is(&self, guess: &[u8]) -> bool {
        let mut difference = guess.len() ^ self.0.len();
        // The time depends on the guess alone. Where it is longer than the secret, the lengths differ already.
        for (&guessed, &byte) in guess.iter().zip(self.0.iter().cycle()) {
            difference |= usize::from(black_box(guessed ^ byte));
        }
        difference == 0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_password_is_the_password() {
        let password = Password::new("sesame").unwrap();
        assert!(password.is(b"sesame"));
        for guess in ["", "s", "sesam", "sesamE", "sesame ", "sesamesesame"] {
            assert!(!password.is(guess.as_bytes()), "{guess:?}");
        }
        assert!(Password::new("").is_none());
    }

    #[test]
    fn a_password_does_not_get_into_a_log() {
        assert!(!format!("{:?}", Password::new("sesame")).contains("sesame"));
    }
}
