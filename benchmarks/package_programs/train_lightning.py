"""Programs as the documents of Lightning have them."""

import lightning as L
import torch
import torchmetrics
from lightning.pytorch import callbacks
from lightning.pytorch.loggers import CSVLogger
from numbers_alike import below, classes, filled, normal
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, width=16, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.example_input_array = torch.zeros(4, 8)
        self.net = filled(nn.Sequential(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, 3)))
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)
        self.losses = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.cross_entropy(self(x), y)
        self.log("train_loss", loss, prog_bar=True)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        out = self(x)
        self.accuracy(out, y)
        self.log("val_loss", F.cross_entropy(out, y), prog_bar=True)
        self.log("val_accuracy", self.accuracy, on_epoch=True)

    def test_step(self, batch, batch_idx):
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch, batch_idx):
        return self(batch[0]).softmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler}}


def _loaders():
    return DataLoader(classes(40), batch_size=8), DataLoader(classes(16, seed=3), batch_size=8)


def _trainer(epochs, *called, **options):
    return L.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        log_every_n_steps=1,
        callbacks=list(called),
        logger=CSVLogger("."),
        **options,
    )


def checkpoints_resume_and_early_stopping():
    """Four epochs with a schedule; the first three are taken up again from their checkpoint."""
    train, validation = _loaders()
    save = callbacks.ModelCheckpoint(monitor="val_loss", save_last=True)
    rates = callbacks.LearningRateMonitor()
    stop = callbacks.EarlyStopping("val_loss", patience=2)
    model = Classifier()
    _trainer(3, save, rates, stop).fit(model, train, validation)
    resumed = Classifier()
    trainer = _trainer(5)
    trainer.fit(resumed, train, validation, ckpt_path=save.last_model_path)
    best = Classifier.load_from_checkpoint(save.best_model_path)
    numbers = [model.losses, resumed.losses, save.best_model_score, trainer.global_step]
    return [*numbers, trainer.test(best, validation), trainer.predict(best, validation)]


def stops_when_the_loss_does_not_fall():
    """Early stopping by a threshold, and gradients that are clipped and accumulated."""
    train, validation = _loaders()
    stop = callbacks.EarlyStopping("val_loss", min_delta=0.05, patience=1)
    trainer = _trainer(30, stop, accumulate_grad_batches=2, gradient_clip_val=0.5)
    model = Classifier(lr=0.01)
    trainer.fit(model, train, validation)
    return [model.losses, trainer.current_epoch, stop.stopped_epoch]


class AutoEncoder(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = filled(nn.Sequential(nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 3)))
        self.decoder = filled(nn.Sequential(nn.Linear(3, 12), nn.ReLU(), nn.Linear(12, 36)), 2)

    def training_step(self, batch, batch_idx):
        x = batch.view(batch.size(0), -1)
        loss = F.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Pictures(L.LightningDataModule):
    def setup(self, stage):
        self.pictures = normal(32, 1, 6, 6)

    def train_dataloader(self):
        return DataLoader(self.pictures, batch_size=8)


def autoencoder_of_a_data_module():
    """The first program of the documents, with its data in a LightningDataModule."""
    model, seen = AutoEncoder(), []

    class Watch(L.Callback):
        def on_train_epoch_end(self, trainer, pl_module):
            seen.append(trainer.callback_metrics["train_loss_epoch"].item())

    trainer = _trainer(5, Watch(), callbacks.StochasticWeightAveraging(swa_lrs=1e-2))
    trainer.fit(model, datamodule=Pictures())
    return [seen, list(model.parameters())]


class Adversaries(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator = filled(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 8)))
        self.discriminator = filled(
            nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(), nn.Linear(16, 1)), 2
        )
        self.losses = []

    def training_step(self, batch, batch_idx):
        real, noise = batch
        one, two = self.optimizers()
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        self.toggle_optimizer(one)
        loss = F.binary_cross_entropy_with_logits(self.discriminator(self.generator(noise)), ones)
        one.zero_grad()
        self.manual_backward(loss)
        one.step()
        self.untoggle_optimizer(one)
        self.toggle_optimizer(two)
        made = self.discriminator(self.generator(noise).detach())
        against = F.binary_cross_entropy_with_logits(self.discriminator(real), ones)
        against = (against + F.binary_cross_entropy_with_logits(made, zeros)) / 2
        two.zero_grad()
        self.manual_backward(against)
        two.step()
        self.untoggle_optimizer(two)
        self.log_dict({"generator": loss, "discriminator": against}, prog_bar=True)
        self.losses += [loss.item(), against.item()]

    def configure_optimizers(self):
        one = torch.optim.Adam(self.generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
        return [
            one,
            torch.optim.Adam(self.discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        ], []


def adversaries_by_manual_optimization():
    """Two optimizers that the program steps itself."""
    model = Adversaries()
    _trainer(3).fit(model, DataLoader(TensorDataset(normal(32, 8), normal(32, 4, seed=5)), 8))
    return model.losses


class Unfreeze(callbacks.BaseFinetuning):
    def freeze_before_training(self, pl_module):
        self.freeze(pl_module.net[0])

    def finetune_function(self, pl_module, epoch, optimizer):
        if epoch == 1:
            self.unfreeze_and_add_param_group(pl_module.net[0], optimizer)


class Frozen(Classifier):
    def configure_optimizers(self):
        trained = [p for p in self.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=0.1, momentum=0.9)
        steps = torch.optim.lr_scheduler.StepLR(optimizer, 4, gamma=0.5)
        return [optimizer], [{"scheduler": steps, "interval": "step"}]


def finetuning_thaws_a_layer():
    """A layer that is trained from the second epoch on, and a schedule by steps."""
    model = Frozen()
    _trainer(3, Unfreeze(), callbacks.DeviceStatsMonitor()).fit(model, *_loaders())
    return [model.losses, list(model.parameters())]


def a_loop_of_fabric():
    """A loop of one's own with Fabric: setup, backward, clipping, saving and loading."""
    fabric = L.Fabric(accelerator="cpu", devices=1)
    fabric.launch()
    model = filled(nn.Sequential(nn.Embedding(11, 6), nn.Flatten(), nn.Linear(30, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = fabric.setup(model, optimizer)
    data = TensorDataset(below(11, 24, 5), below(2, 24))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=6))
    losses = []
    for _ in range(4):
        for tokens, kinds in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens), kinds)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            losses.append(loss.item())
    fabric.save("state.ckpt", {"model": model, "optimizer": optimizer, "step": len(losses)})
    filled(model, 3)
    rest = fabric.load("state.ckpt", {"model": model, "optimizer": optimizer})
    return [losses, rest["step"], list(model.parameters()), fabric.all_reduce(loss)]
