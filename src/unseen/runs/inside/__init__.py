"""What an audit looks at inside a model: gradient steps, states by layer, directions."""
