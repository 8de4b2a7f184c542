"""What the tests share: real servers, waiting for facts, guards."""
