from newfound.data.listing import Listing as Listing
from newfound.data.pixels import Images as Images
from newfound.data.pixels import arrays as arrays
from newfound.discovery.discover import discover as discover
from newfound.discovery.discover import pretrain as pretrain
from newfound.discovery.result import Discovery as Discovery
from newfound.discovery.settings import Run as Run
from newfound.discovery.settings import StageOne as StageOne
from newfound.errors import InputError as InputError
from newfound.estimators import NovelClassDiscovery as NovelClassDiscovery
from newfound.estimators import SpacingClustering as SpacingClustering
from newfound.methods import METHODS as METHODS
from newfound.methods.base import Method as Method
from newfound.methods.base import Recipe as Recipe
from newfound.methods.base import Sum as Sum
from newfound.methods.spacing import Spacing as Spacing
from newfound.networks.model import Model as Model
from newfound.spacing.loss import SpacingLoss as SpacingLoss
from newfound.types import Problem as Problem

__all__: list[str]
