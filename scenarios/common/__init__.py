"""What all commands share: options, exit statuses, errors, questions to the operator; pictures."""
