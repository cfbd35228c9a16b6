"""The trainer: micro-batches in, versions of a policy out.

    training.microbatches.v1 ─▶ intake ─▶ step (advantage, objective, sentinels) ─▶ checkpoint
                                                                                      │
        weights.promotions.v1 (a proposal) ◀── weights.versions.v1 (a manifest) ◀── publish

The only part of headrace that needs torch and transformers, beside the engine's plug-in. Where
they are not installed it runs in the engine's environment (`trainer.relaunch`).
"""
