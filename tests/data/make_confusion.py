#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes confusion.json: scikit-learn's confusion matrix, precision, recall and F1 of 300 labels and answers of 7 classes.

Nobody has class 5, and class 6 is no answer; scikit-learn is told to give NaN (null in the file) for 0 / 0.

    python3 make_confusion.py confusion.json      (needs numpy and scikit-learn)
"""
import json
import sys

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

SAMPLES, CLASSES = 300, 7


def main():
    random = np.random.default_rng(0)
    labels = random.choice([0, 1, 2, 3, 4, 6], SAMPLES, p=[0.3, 0.25, 0.2, 0.12, 0.08, 0.05])
    answers = np.where(random.random(SAMPLES) < 0.6, labels, random.integers(0, 6, SAMPLES))
    answers[answers == 6] = 0
    values = precision_recall_fscore_support(labels, answers, labels=range(CLASSES), zero_division=np.nan)[:3]
    numbers = [[None if np.isnan(x) else float(x) for x in of_all] for of_all in values]
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump({"labels": labels.tolist(), "answers": answers.tolist(), "matrix": confusion_matrix(labels, answers, labels=range(CLASSES)).tolist(),
                   "precision": numbers[0], "recall": numbers[1], "f1": numbers[2]}, out)
        out.write("\n")


if __name__ == "__main__":
    main()
